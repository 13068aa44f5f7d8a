//! Takes a URL apart. No error repeats any of its text but the scheme, which is all before the first `:`, and the names of
//! options.

use std::str::FromStr;

use super::invalid::InvalidUrl;
use super::options::Options;
use super::percent::percent_decode;
use super::{Host, StoreUrl};

/// Other names of a scheme, as hosting providers and other clients print them.
const ALIASES: [(&str, &str); 5] = [
    ("mariadb", "mysql"),
    ("postgresql", "postgres"),
    ("unix", "redis+unix"),
    ("valkey", "redis"),
    ("valkeys", "rediss"),
];

const NO_SCHEME: &str =
    "a store URL begins with a scheme, as in `memory:` or `file:/var/lib/lockkit`";
const BAD_CHARACTER: &str = "the URL has a blank or a control character: write a blank as `%20`";
/// Probably of a password with a `/` or `?` in it.
const MISPLACED_AT: &str = "the URL has an `@` after its hosts: in a user or password write `/` as `%2F`, `?` as \
     `%3F`, `#` as `%23` and `@` as `%40`; in a path or an option write `@` as `%40`";

impl FromStr for StoreUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let parts = text.split_once(':');
        let (scheme, rest) = parts
            .filter(|(scheme, _)| is_scheme(scheme))
            .ok_or_else(|| InvalidUrl::new(NO_SCHEME))?;
        let scheme = canonical(scheme.to_ascii_lowercase());
        if rest.contains('#') {
            return Err(InvalidUrl::new("the URL has a `#`: write it as `%23`"));
        }
        if rest.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return Err(InvalidUrl::new(BAD_CHARACTER));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = split_authority(rest);
        // Behind hosts an `@` most likely ends a password that was cut at a `/` or `?`, and what would be
        // taken for hosts, path and options is a part of it: it must not go on and be shown as such.
        let has_hosts = authority.is_some_and(|authority| !authority.is_empty());
        if has_hosts && (path.contains('@') || query.contains('@')) {
            return Err(InvalidUrl::new(MISPLACED_AT));
        }
        let mut url = Self {
            options: Options::parse(&scheme, query)?,
            scheme,
            user: None,
            password: None,
            authority: authority.is_some(),
            hosts: Vec::new(),
            path: decoded(path, "path")?,
        };
        let Some(authority) = authority else {
            return Ok(url);
        };
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = split_at_colon(user);
        url.user = Some(decoded(user, "user")?).filter(|user| !user.is_empty());
        let password = password.map(|password| decoded(password, "password"));
        url.password = password.transpose()?;
        if !hosts.is_empty() {
            let hosts = hosts.split(',').zip(1..);
            let hosts = hosts.map(|(host, position)| parse_host(host, position));
            url.hosts = hosts.collect::<Result<_, _>>()?;
        }
        Ok(url)
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

fn canonical(scheme: String) -> String {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == scheme);
    alias.map_or(scheme, |(_, name)| (*name).to_owned())
}

/// The part between `//` and the next `/`, if there is a `//`, and the rest.
fn split_authority(rest: &str) -> (Option<&str>, &str) {
    match rest.strip_prefix("//") {
        Some(rest) => {
            let end = rest.find('/').unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            (Some(authority), path)
        }
        None => (None, rest),
    }
}

/// The part before the first `:`, and what follows it if there is one.
fn split_at_colon(text: &str) -> (&str, Option<&str>) {
    let parts = text.split_once(':');
    parts.map_or((text, None), |(before, after)| (before, Some(after)))
}

fn parse_host(text: &str, position: usize) -> Result<Host, InvalidUrl> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']').ok_or_else(|| bad_port(position))?;
            match port.strip_prefix(':') {
                Some(port) => (name, Some(port)),
                None if port.is_empty() => (name, None),
                None => return Err(bad_port(position)),
            }
        }
        None => split_at_colon(text),
    };
    if name.is_empty() {
        return Err(InvalidUrl::new(format!(
            "host {position} of the URL is empty: write the hosts as `host:port,host:port`"
        )));
    }
    let port = port
        .map(|port| parse_port(port).ok_or_else(|| bad_port(position)))
        .transpose()?;
    let name = decoded(name, "host")?;
    Ok(Host { name, port })
}

fn bad_port(position: usize) -> InvalidUrl {
    InvalidUrl::new(format!(
        "host {position} of the URL has no valid port: write `host` or `host:port` with a port from 1 to \
         65535, an IPv6 address in brackets, and in a password `/` as `%2F`, `?` as `%3F` and `#` as `%23`"
    ))
}

fn parse_port(text: &str) -> Option<u16> {
    // `u16::from_str` takes a leading `+`.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0)
}

fn decoded(text: &str, part: &'static str) -> Result<String, InvalidUrl> {
    percent_decode(text).ok_or_else(|| InvalidUrl::bad_escape(part))
}
