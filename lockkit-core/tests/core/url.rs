//! The grammar of store URLs, the text of every error, and that no secret leaks.

#![expect(clippy::panic, reason = "a test may fail by a panic")]

use std::time::Duration;

use lockkit_core::url::{InvalidUrl, StoreUrl, Tls, format_duration, parse_duration};
use lockkit_core::{ClientSettings, Lease, PollRange};

fn parse(text: &str) -> StoreUrl {
    text.parse()
        .unwrap_or_else(|error: InvalidUrl| panic!("{text}: {error}"))
}

fn error(text: &str) -> String {
    let parsed: Result<StoreUrl, InvalidUrl> = text.parse();
    parsed.expect_err(text).to_string()
}

#[test]
fn urls_of_every_store_are_parsed() {
    // The URL; its scheme, hosts and path.
    let cases = [
        ("memory:", "memory", "", ""),
        ("file:/var/lib/lockkit", "file", "", "/var/lib/lockkit"),
        ("file:locks/a%20b", "file", "", "locks/a b"),
        ("file:///abs", "file", "", "/abs"),
        ("sqlite:locks.db", "sqlite", "", "locks.db"),
        ("redis://", "redis", "", ""),
        ("REDISS://h/", "rediss", "h", "/"),
        (
            "redis+unix:///run/redis.sock",
            "redis+unix",
            "",
            "/run/redis.sock",
        ),
        (
            "redis+sentinel://h1,h2:26379/master",
            "redis+sentinel",
            "h1 h2:26379",
            "/master",
        ),
        ("redlock://h1:1,h2:2,h3:3", "redlock", "h1:1 h2:2 h3:3", ""),
        (
            "etcd://[::1]:2379,[fe80::2]/p",
            "etcd",
            "[::1]:2379 [fe80::2]",
            "/p",
        ),
        (
            "zk://h1,h2,h3/chroot?root=/locks",
            "zk",
            "h1 h2 h3",
            "/chroot",
        ),
        ("postgres://%2Fvar%2Frun/db", "postgres", "/var/run", "/db"),
    ];
    for (text, scheme, hosts, path) in cases {
        let url = parse(text);
        let seen: Vec<String> = url.hosts().iter().map(ToString::to_string).collect();
        assert_eq!(
            (url.scheme(), seen.join(" ").as_str(), url.path()),
            (scheme, hosts, path),
            "{text}"
        );
    }
}

#[test]
fn users_and_passwords_are_decoded() {
    for (text, user, password) in [
        ("redis://h", None, None),
        ("redis://u@h", Some("u"), None),
        ("redis://u:@h", Some("u"), Some("")),
        ("redis://:p@h", None, Some("p")),
        (
            "redis://u%40x:p%2F%3F%23%25:+@h",
            Some("u@x"),
            Some("p/?#%:+"),
        ),
        ("redis://u:p@ss@h", Some("u"), Some("p@ss")),
    ] {
        let url = parse(text);
        assert_eq!((url.user(), url.password()), (user, password), "{text}");
    }
}

#[test]
fn options_are_parsed_and_unknown_ones_are_errors() {
    let mut url = parse("x:?ttl=30s&prefix=app%3A+&poll=50ms..1s&n=42&b=true&w=push&max_hold=1h");
    let client = ClientSettings::default()
        .or_from_url(&mut url.options)
        .unwrap();
    assert_eq!(client.lease, Some(Lease::renewed(Duration::from_secs(30))));
    assert_eq!(client.prefix.as_deref(), Some("app:+"));
    assert_eq!((client.timeout, client.outage), (None, None));
    assert_eq!(client.max_hold, Some(Duration::from_secs(3600)));
    let range = PollRange::new(Duration::from_millis(50), Duration::from_secs(1));
    assert_eq!(url.options.poll("poll").unwrap(), Some(range));
    assert_eq!(url.options.number("n").unwrap(), Some(42));
    assert_eq!(url.options.flag("b").unwrap(), Some(true));
    let left = url.options.finish().unwrap_err();
    assert_eq!(
        left.to_string(),
        "the scheme `x` has no option `w`: its options are `b`, `label`, `max_hold`, `n`, `outage`, `poll`, `prefix`, `timeout`, `ttl`"
    );
    assert_eq!(url.options.text("w").as_deref(), Some("push"));
    url.options.finish().unwrap();

    let mut url = parse("x:?poll=2s&tt=1s");
    assert_eq!(
        url.options.poll("poll").unwrap(),
        Some(PollRange::new(
            Duration::from_secs(2),
            Duration::from_secs(2)
        ))
    );
    url.options.text("ttl");
    let left = url.options.finish().unwrap_err().to_string();
    assert!(
        left.contains("no option `tt` (did you mean `ttl`?)"),
        "{left}"
    );
}

#[test]
fn each_syntax_error_says_what_to_do() {
    let cases = [
        ("", "a store URL begins with a scheme"),
        ("/var/lib/locks", "begins with a scheme"),
        ("1x:", "begins with a scheme"),
        ("hunter2@host:6379", "begins with a scheme"),
        ("redis://h/#x", "write it as `%23`"),
        ("file:/my locks", "write a blank as `%20`"),
        ("redis://u:hunter/2@h/0", "has an `@` after its hosts"),
        ("redis://u:1/hunter2@h/0", "has an `@` after its hosts"),
        ("redis://u:1?hunter2=1@h", "has an `@` after its hosts"),
        ("redis://u:hunter2%@h", "the password of the URL has a `%`"),
        ("redis://hunter2%zz@h", "the user of the URL has a `%`"),
        ("file:/a%2", "the path of the URL has a `%`"),
        ("x:?a=%ff", "the query of the URL has a `%`"),
        ("etcd://h1,,h2", "host 2 of the URL is empty"),
        ("etcd://:2379", "host 1 of the URL is empty"),
        ("redis://h:hunter2", "host 1 of the URL has no valid port"),
        ("redis://h1,h:0", "host 2 of the URL has no valid port"),
        ("redis://h:65536", "host 1 of the URL has no valid port"),
        ("redis://h:+1", "host 1 of the URL has no valid port"),
        ("redis://::1", "host 1 of the URL is empty"),
        ("redis://[::1", "host 1 of the URL has no valid port"),
        ("redis://[::1]1", "host 1 of the URL has no valid port"),
        ("x:?a=1&hunter2!=1", "option 2 of the URL has no valid name"),
        ("x:?ttl", "the option `ttl` has no value: write `ttl=...`"),
        ("x:?ttl=1s&ttl=2s", "the option `ttl` is given twice"),
    ];
    for (text, expected) in cases {
        let message = error(text);
        assert!(message.contains(expected), "{text}: {message}");
        assert!(!message.contains("hunter"), "{text}: {message}");
    }
}

#[test]
fn each_value_error_says_what_to_write() {
    let cases = [
        (
            "ttl=30",
            "the option `ttl` cannot be `30`: write a whole number and its unit",
        ),
        (
            "ttl=0s",
            "the option `ttl` cannot be `0`: it must be longer",
        ),
        ("poll=1s..50ms", "as `50ms..1s`"),
        ("poll=0s..1s", "as `50ms..1s`"),
        (
            "poll=",
            "the option `poll` cannot be ``: write the shortest",
        ),
        ("n=-1", "write a whole number up to 18446744073709551615"),
        ("n=+1", "write a whole number"),
        (
            "b=yes",
            "the option `b` cannot be `yes`: write `true` or `false`",
        ),
        (
            "w=pull%0a",
            "the option `w` cannot be `pull\\n`: write `push` or `poll`",
        ),
    ];
    for (query, expected) in cases {
        let mut options = parse(&format!("x:?{query}")).options;
        let error = ClientSettings::default()
            .or_from_url(&mut options)
            .map(|_| ())
            .and_then(|()| options.poll("poll").map(|_| ()))
            .and_then(|()| options.number("n").map(|_| ()))
            .and_then(|()| options.flag("b").map(|_| ()))
            .and_then(|()| {
                options
                    .choice("w", &[("push", ()), ("poll", ())])
                    .map(|_| ())
            })
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{query}: {error}");
    }
    let mut options = parse(&format!("x:?ttl={}", "9".repeat(1000))).options;
    assert!(options.duration("ttl").unwrap_err().to_string().len() < 200);
}

#[test]
fn no_secret_is_shown() {
    let url = parse("redis://admin:hunter2@h1,h2/0?password=hunter2&ttl=1s");
    assert_eq!(url.to_string(), "redis://***@h1,h2/0?password=***&ttl=***");
    let shown = format!("{url:?} {:?} {:#?}", url.options, url);
    assert!(
        !shown.contains("hunter2") && !shown.contains("admin"),
        "{shown}"
    );
    for text in [
        "redis:admin:hunter2@h/0",
        "redis:/admin:hunter2@h/0",
        "redis:///admin:hunter2@h/0",
    ] {
        let shown = format!("{:?}", parse(text));
        assert!(shown.contains("***@h/0"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert_eq!(parse("file:/app@1/locks").to_string(), "file:/app@1/locks");
}

/// A small generator of numbers, from a seed that a failure prints.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn text(&mut self, alphabet: &[&str], longest: usize) -> String {
        (0..self.below(longest + 1))
            .map(|_| alphabet[self.below(alphabet.len())])
            .collect()
    }
}

fn escape(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn escaped_text_is_restored() {
    let alphabet = [
        "a", "Z", "/", "@", "?", "#", "%", ":", ",", "&", "=", "+", "\u{e9}", " ",
    ];
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let mut word = || random.text(&alphabet, 8);
        let (user, password, host, path, value) = (word(), word(), word() + "h", word(), word());
        let text = format!(
            "x://{}:{}@{}:1,h2/{}?v={}",
            escape(&user),
            escape(&password),
            escape(&host),
            escape(&path),
            escape(&value)
        );
        let mut url = parse(&text);
        assert_eq!(url.user().unwrap_or(""), user, "seed {seed}");
        assert_eq!(url.password(), Some(password.as_str()), "seed {seed}");
        assert_eq!(url.hosts()[0].name(), host, "seed {seed}");
        assert_eq!(url.path(), format!("/{path}"), "seed {seed}");
        assert_eq!(url.options.text("v"), Some(value), "seed {seed}");
    }
}

/// Whatever the text, there is no panic, and a password in it is not repeated.
#[test]
fn noise_neither_panics_nor_leaks() {
    let alphabet = [
        "redis:", "//", "/", "@", "?", "#", "%", "%4", ":", ",", "&", "=", "[", "]", "h", "12",
        "ttl",
    ];
    for seed in 0..20_000 {
        let mut random = Random(seed);
        let text = format!(
            "redis://u:{}hunter2{}@{}",
            random.text(&alphabet, 3),
            random.text(&alphabet, 3),
            random.text(&alphabet, 5)
        );
        let parsed: Result<StoreUrl, InvalidUrl> = text.parse();
        let shown = match parsed {
            Ok(mut url) => format!("{url} {url:?} {:?}", url.options.finish()),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!shown.contains("hunter2"), "seed {seed}: {text}: {shown}");
    }
}

#[test]
fn durations_are_written_as_they_are_read() {
    for text in ["250us", "1500ms", "2s", "90m", "23h", "7d", "0s"] {
        assert_eq!(format_duration(parse_duration(text).unwrap()), text);
    }
    assert_eq!(format_duration(Duration::from_secs(86_400 * 1000)), "1000d");
    assert_eq!(format_duration(Duration::from_nanos(1)), "0s");
}

#[test]
fn durations_have_every_unit_and_nothing_else() {
    for (text, micros) in [
        ("250us", 250),
        ("500ms", 500_000),
        ("2s", 2_000_000),
        ("1m", 60_000_000),
        ("1h", 3_600_000_000),
        ("7d", 604_800_000_000),
        ("0s", 0),
    ] {
        assert_eq!(
            parse_duration(text),
            Ok(Duration::from_micros(micros)),
            "{text}"
        );
    }
    for text in [
        "",
        "5",
        "s",
        "-1s",
        "+1s",
        "1.5s",
        "1 s",
        "1S",
        "1sec",
        "1s1s",
        "99999999999999999999s",
        "18446744073709551615d",
        "\u{661}s",
    ] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
}

#[test]
fn misspellings_are_found_and_other_words_left_alone() {
    let known = ["ttl", "prefix", "timeout", "poll"];
    for (given, word) in [
        ("tll", Some("ttl")),
        ("tt", Some("ttl")),
        ("TTL", Some("ttl")),
        ("prefx", Some("prefix")),
        ("timeouts", Some("timeout")),
        ("pol", Some("poll")),
        ("plol", Some("poll")),
        ("password", None),
        ("", None),
    ] {
        let said = InvalidUrl::unknown_scheme(given, &known).to_string();
        let meant = word.map(|word| format!("(did you mean `{word}`?)"));
        assert_eq!(meant.is_some(), said.contains("did you mean"), "{said}");
        assert!(said.contains(&meant.unwrap_or_default()), "{said}");
    }
}

#[test]
fn whole_escapes_are_decoded_and_no_others() {
    assert_eq!(parse("file:a%2Fb%2fc+d").path(), "a/b/c+d");
    assert_eq!(parse("file:%f0%9f%94%92").path(), "\u{1F512}");
    for text in ["%", "%2", "%2g", "%+1", "%ff", "a%00b"] {
        let message = error(&format!("file:{text}"));
        assert!(message.contains("the path of the URL has a `%`"), "{text}");
    }
}

fn tls(text: &str, supported: bool) -> Result<Option<Tls>, InvalidUrl> {
    let mut url: StoreUrl = text.parse()?;
    url.tls("etcds", supported)
}

#[test]
fn takes_certificates_of_secure_scheme_only() {
    let all = tls("etcds://h/?ca=/ca&cert=/c&key=/k", true).unwrap();
    assert_eq!(all, Some(Tls::new().ca("/ca").identity("/c", "/k")));
    assert_eq!(tls("etcds://h", true).unwrap(), Some(Tls::new()));
    assert_eq!(tls("etcd://h", true).unwrap(), None);
    for option in ["ca", "cert", "key"] {
        let refused = tls(&format!("etcd://h/?{option}=/x"), true).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains(option) && refused.contains("`etcds`"),
            "{refused}"
        );
    }
    assert!(tls("etcds://h/?cert=/c", true).is_err());
    let off = tls("etcds://h", false).unwrap_err();
    assert_eq!(off, InvalidUrl::feature_off("etcds", "tls"));
}

#[test]
fn takes_user_and_password_or_neither() {
    let read = |text: &str| text.parse::<StoreUrl>().unwrap().credentials("has both");
    assert_eq!(
        read("etcd://u:p@h").unwrap(),
        Some(("u".into(), "p".into()))
    );
    assert_eq!(read("etcd://h").unwrap(), None);
    assert!(read("etcd://u@h").is_err());
}
