//! What a URL must not have.

use lockkit_core::url::StoreUrl;
use lockkit_zk::ZkStoreBuilder;

#[test]
fn refuses_unknown_and_invalid_options() {
    for text in [
        "zk://",
        "zk:///chroot",
        "zk://h/a//b",
        "zk://h/a/../b",
        "zk://h/?root=locks",
        "zk://h/?root=/a/./b",
        "zk://h/?names=some",
        "zk://h/?dialect=java",
        "zk://h/?recheck=0s",
        "zk://h/?acl=creator",
        "zk://user@h/",
        "zk://h/?wake=poll",
    ] {
        let read = text.parse::<StoreUrl>();
        let read = read.and_then(|mut url| ZkStoreBuilder::from_url(&mut url));
        assert!(read.is_err(), "{text}");
    }
}
