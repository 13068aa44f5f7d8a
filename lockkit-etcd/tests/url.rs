//! What a URL must not have.

use lockkit_core::url::StoreUrl;
use lockkit_etcd::EtcdStoreBuilder;

#[test]
fn refuses_unknown_parts() {
    for text in [
        "etcd:",
        "etcd:///locks",
        "etcd://user@h",
        "etcd://h/?names=maybe",
        "etcd://h/?lease=hold",
        "etcd://h/?recheck=0s",
        "etcd://h/?token_base=-1",
        "etcd://h/?ca=/x",
        "etcd://h/?queue=fifo",
        "etcd://h/?cert=/x&key=/y",
        "etcds://h/?cert=/x",
        "etcds://h/?key=/x",
    ] {
        let read = text.parse::<StoreUrl>();
        let read = read.and_then(|mut url| EtcdStoreBuilder::from_url(&mut url));
        assert!(read.is_err(), "{text}");
    }
}
