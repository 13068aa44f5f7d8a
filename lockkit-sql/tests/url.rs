//! The URLs of SQL stores.

#[cfg(feature = "mysql")]
mod mysql {
    use lockkit_core::url::InvalidUrl;
    use lockkit_sql::{Mysql, SqlStoreBuilder};

    fn read(text: &str) -> Result<SqlStoreBuilder<Mysql>, InvalidUrl> {
        SqlStoreBuilder::<Mysql>::from_url(&mut text.parse()?)
    }

    #[test]
    fn reads_every_part_of_a_url() {
        let builder = read(
            "mysql://app:se%20cret@db:3307/shop?table=app.locks&poll=1ms..2ms&schema=check&pin=true\
             &connections=3&connect_timeout=1s&sslmode=disable&prepare=false",
        )
        .unwrap();
        let shown = format!("{builder:?}");
        for part in ["app", "locks", "Check", "pin: true", "prepare: false", "3"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(!shown.contains("se cret"), "{shown}");
    }

    #[test]
    fn character_set_can_only_be_that_of_the_driver() {
        let _ = read("mysql://db/app?charset=utf8mb4").unwrap();
        assert!(read("mysql://db/app?charset=latin1").is_err());
    }

    #[test]
    fn refuses_unknown_options() {
        for text in [
            "mysql://db",
            "mysql://db/",
            "mysql://a,b/app",
            "mysql://db/app/more",
            "mysql://db/app?wake=push",
            "mysql://db/app?sslmode=maybe",
            "mysql://db/app?connections=0",
            "mysql://db/app?table=a;b",
            "mysql://db/app?socket=relative",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use lockkit_core::url::InvalidUrl;
    use lockkit_sql::{Postgres, SqlStoreBuilder};

    fn read(text: &str) -> Result<SqlStoreBuilder<Postgres>, InvalidUrl> {
        SqlStoreBuilder::<Postgres>::from_url(&mut text.parse()?)
    }

    #[test]
    fn refuses_unknown_options() {
        for text in [
            "postgres:",
            "postgres://a,b/",
            "postgres://h/a/b",
            "postgres://h/?table=Locks",
            "postgres://h/?wake=maybe",
            "postgres://h/?connections=0",
            "postgres://h/?connect_timeout=0s",
            "postgres://h/?sslmode=maybe",
            "postgres://h/?schema=drop",
            "postgres://h/?prepare=perhaps",
            "postgres://h/?host=other",
            "postgres://h/?options=endpoint%3Dx",
            "postgres://h/?ca=/a&sslrootcert=/b",
            "postgres:///db",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", read("postgres://us3r:s3cret@h/").unwrap());
        assert!(
            !shown.contains("us3r") && !shown.contains("s3cret"),
            "{shown}"
        );
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use std::time::Duration;

    use lockkit_core::url::InvalidUrl;
    use lockkit_sql::{SqlStoreBuilder, Sqlite};

    fn read(text: &str) -> Result<SqlStoreBuilder<Sqlite>, InvalidUrl> {
        SqlStoreBuilder::<Sqlite>::from_url(&mut text.parse()?)
    }

    #[test]
    fn reads_every_part_of_a_url() {
        let builder =
            read("sqlite:/var/a%20b.db?table=app_locks&poll=1ms..2ms&schema=check&sync=full")
                .unwrap();
        assert_eq!(builder.capabilities().poll.max, Duration::from_millis(2));
        let shown = format!("{builder:?}");
        for part in ["app_locks", "Check"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
    }

    #[test]
    fn refuses_unknown_options() {
        for text in [
            "sqlite:",
            "sqlite://host/a.db",
            "sqlite::memory:",
            "sqlite:file:a.db",
            "sqlite:a.db?table=a;b",
            "sqlite:a.db?sync=off",
            "sqlite:a.db?pin=true",
            "sqlite:a.db?wake=push",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
