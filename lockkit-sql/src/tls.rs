//! What a URL says of TLS, for the databases with a server.

use lockkit_core::url::{InvalidUrl, StoreUrl};

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
/// `verify-full`.
pub(crate) fn take<M: Copy>(url: &mut StoreUrl, words: [M; 5]) -> Result<Tls<M>, InvalidUrl> {
    let asked = url.options.choice("sslmode", &MODES)?;
    let ca = url.options.text("ca");
    let identity = url.options.identity()?;
    let certificates = ca.is_some() || identity.is_some();
    let mode = match asked {
        // Who says whom to trust wants to know whom it speaks to.
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
    Ok(Tls { mode, ca, identity })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &str) -> Result<Tls<&'static str>, InvalidUrl> {
        let mut url = format!("postgres://db/app?{options}").parse()?;
        take(&mut url, MODES.map(|(word, _)| word))
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
