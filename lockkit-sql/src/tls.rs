//! What a URL says of TLS, for the databases with a server.

use lockkit_core::url::{InvalidUrl, StoreUrl};

/// The names that libpq and the clients of MySQL give to our options.
const ALIASES: [(&str, &str); 7] = [
    ("ssl-mode", "sslmode"),
    ("sslrootcert", "ca"),
    ("ssl-ca", "ca"),
    ("sslcert", "cert"),
    ("ssl-cert", "cert"),
    ("sslkey", "key"),
    ("ssl-key", "key"),
];

const DISABLE: usize = 0;
const PREFER: usize = 1;
const REQUIRE: usize = 2;
const VERIFY_CA: usize = 3;
const VERIFY_FULL: usize = 4;
/// From none at all to a server whose name its certificate bears.
const MODES: [(&str, usize); 5] = [
    ("disable", DISABLE),
    ("prefer", PREFER),
    ("require", REQUIRE),
    ("verify-ca", VERIFY_CA),
    ("verify-full", VERIFY_FULL),
];
/// The words of MySQL, and the one of libpq for which the driver has no step of its own.
const OTHER_MODES: [(&str, usize); 6] = [
    ("allow", PREFER),
    ("disabled", DISABLE),
    ("preferred", PREFER),
    ("required", REQUIRE),
    ("verify_ca", VERIFY_CA),
    ("verify_identity", VERIFY_FULL),
];

/// The options, with the driver's word for how strict it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tls<M> {
    pub(crate) mode: M,
    /// The certificates to trust beside those of the public authorities.
    pub(crate) ca: Option<String>,
    /// The client's certificate and its key.
    pub(crate) identity: Option<(String, String)>,
}

impl<M> Tls<M> {
    pub(crate) fn files(&self) -> Vec<String> {
        let (cert, key) = self.identity.clone().unzip();
        [self.ca.clone(), cert, key].into_iter().flatten().collect()
    }
}

/// Takes them. `words` are the driver's for `disable`, `prefer`, `require`, `verify-ca` and
/// `verify-full`; `verified` says that another option asks for a server that is verified.
pub(crate) fn take<M: Copy>(
    url: &mut StoreUrl,
    words: [M; 5],
    verified: bool,
) -> Result<Tls<M>, InvalidUrl> {
    for (alias, name) in ALIASES {
        url.options.alias(alias, name)?;
    }
    let asked = mode(url)?;
    let ca = url.options.text("ca");
    let identity = url.options.identity()?;
    let certificates = ca.is_some() || identity.is_some();
    let mode = match asked {
        _ if verified => VERIFY_FULL,
        // A URL that names certificates asks for a server that is verified.
        Some(mode) if ca.is_some() && mode < VERIFY_CA || certificates && mode < REQUIRE => {
            let why = "the URL has certificates, and this looks at none: write `verify-full`";
            return Err(InvalidUrl::bad_value("sslmode", MODES[mode].0, why));
        }
        Some(mode) => mode,
        None if certificates => VERIFY_FULL,
        None if cfg!(feature = "tls") => PREFER,
        None => DISABLE,
    };
    if mode > PREFER && !cfg!(feature = "tls") {
        return Err(InvalidUrl::FeatureOff {
            scheme: url.scheme().to_owned(),
            feature: "tls",
        });
    }
    let mode = words[mode];
    // The word of libpq for the public authorities, which are trusted in any case.
    let ca = ca.filter(|ca| ca != "system");
    Ok(Tls { mode, ca, identity })
}

fn mode(url: &mut StoreUrl) -> Result<Option<usize>, InvalidUrl> {
    let Some(text) = url.options.text("sslmode") else {
        return Ok(None);
    };
    let word = text.to_ascii_lowercase();
    let mut modes = MODES.iter().chain(&OTHER_MODES);
    let found = modes.find(|(known, _)| *known == word);
    found.map(|(_, mode)| Some(*mode)).ok_or_else(|| {
        let expected = "write `disable`, `prefer`, `require`, `verify-ca` or `verify-full`";
        InvalidUrl::bad_value("sslmode", &text, expected)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &str) -> Result<Tls<&'static str>, InvalidUrl> {
        let mut url = format!("postgres://db/app?{options}").parse()?;
        take(&mut url, MODES.map(|(word, _)| word), false)
    }

    #[test]
    #[cfg(feature = "tls")]
    fn certificates_are_looked_at() {
        let mode = |options| read(options).map(|tls| tls.mode);
        assert_eq!(mode(""), Ok("prefer"));
        assert_eq!(mode("sslmode=disable"), Ok("disable"));
        assert_eq!(mode("sslmode=require"), Ok("require"));
        assert_eq!(mode("ca=/ca.pem"), Ok("verify-full"));
        assert_eq!(mode("ca=/ca.pem&sslmode=verify-ca"), Ok("verify-ca"));
        assert_eq!(mode("cert=/me.pem&key=/me.key"), Ok("verify-full"));
        assert_eq!(mode("cert=/c&key=/k&sslmode=require"), Ok("require"));
        assert_eq!(mode("sslrootcert=system"), Ok("verify-full"));
        assert_eq!(mode("ssl-mode=VERIFY_IDENTITY"), Ok("verify-full"));
        assert_eq!(mode("sslmode=allow"), Ok("prefer"));
        let identity = read("sslrootcert=/ca&sslcert=/c&sslkey=/k")
            .unwrap()
            .identity;
        assert_eq!(identity, Some(("/c".to_owned(), "/k".to_owned())));
        let identity = read("ca=/ca&cert=/c&key=/k").unwrap().identity;
        assert_eq!(identity, Some(("/c".to_owned(), "/k".to_owned())));
    }

    #[test]
    fn what_could_go_unprotected_is_refused() {
        for options in [
            "ca=/ca.pem&sslmode=require",
            "ca=/ca.pem&sslmode=prefer",
            "ca=/ca.pem&sslmode=disable",
            "cert=/me.pem&key=/me.key&sslmode=prefer",
            "sslrootcert=system&sslmode=require",
            "cert=/me.pem",
            "key=/me.key",
        ] {
            let error = read(options).unwrap_err();
            assert!(matches!(error, InvalidUrl::BadValue { .. }), "{error}");
        }
    }

    #[test]
    #[cfg(not(feature = "tls"))]
    fn without_the_feature_it_is_not_promised() {
        for options in ["sslmode=require", "ca=/ca.pem", "sslmode=verify-full"] {
            let error = read(options).unwrap_err();
            assert!(matches!(error, InvalidUrl::FeatureOff { .. }), "{error}");
        }
        assert_eq!(read("").map(|tls| tls.mode), Ok("disable"));
        assert_eq!(read("sslmode=prefer").map(|tls| tls.mode), Ok("prefer"));
    }
}
