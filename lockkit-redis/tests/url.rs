//! What a URL must not have.

use lockkit_core::url::StoreUrl;
use lockkit_redis::{RedisStoreBuilder, RedlockStoreBuilder};

#[test]
fn refuses_unknown_parts() {
    for text in [
        "redis://",
        "redis://a,b",
        "redis://h/x",
        "redis://h/?db=2",
        "redis://h/?ca=/ca.pem",
        "redis://h/?cert=/c.pem&key=/k.pem",
        "rediss://h/?cert=/c.pem",
        "rediss://h/?key=/k.pem",
        "redis://h/?wake=maybe",
        "redis://h/?wake=poll&queue=fifo",
        "redis://h/?recheck=0s",
        "redis://h/?token_ttl=1d",
        "redis+unix://h/run/redis.sock",
        "redis+unix:",
        "redis+unix:///run/redis.sock?db=9223372036854775808",
        "redis+unix:app:pw@/run/redis.sock",
    ] {
        let read = text.parse::<StoreUrl>();
        let read = read.and_then(|mut url| RedisStoreBuilder::from_url(&mut url));
        assert!(read.is_err(), "{text}");
    }
}

#[test]
fn several_servers_refuse_what_they_cannot_do() {
    for text in [
        "redlock://h1",
        "redlock://h1,h2",
        "redlock://h1,h2,h3,h4",
        "redlock://h1,h2,h3/x",
        "redlock://h1,h2,h3?quarantine=off",
        "redlock://h1,h2,h3?queue=fifo",
        "redlock://h1,h2,h3?acks=1",
        "redlock://h1,h2,h3?ca=/ca.pem",
    ] {
        let read = text.parse::<StoreUrl>();
        let read = read.and_then(|mut url| RedlockStoreBuilder::from_url(&mut url));
        assert!(read.is_err(), "{text}");
    }
}
