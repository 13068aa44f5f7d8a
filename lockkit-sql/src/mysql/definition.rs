//! What the server says of a table that is there.

/// The parts of a definition that count: each column with its type, each key with its columns, and
/// who keeps the table.
pub(super) fn definitions(text: &str) -> Vec<(String, String)> {
    let plain = text.replace('`', "");
    let part = |line: &str| {
        let line = line.trim().trim_end_matches(',');
        if let Some(engine) = line.strip_prefix(") ENGINE=") {
            let engine = engine.split(' ').next().unwrap_or_default();
            return Some(("ENGINE".to_owned(), engine.to_owned()));
        }
        if let Some(columns) = line.strip_prefix("PRIMARY KEY ") {
            return Some(("PRIMARY KEY".to_owned(), columns.to_owned()));
        }
        if let Some(named) = line.strip_prefix("UNIQUE KEY ") {
            let (_, columns) = named.split_once(' ')?;
            return Some(("UNIQUE KEY".to_owned(), columns.to_owned()));
        }
        let (name, rest) = line.split_once(' ')?;
        let kind = rest.split(' ').next().unwrap_or_default();
        // How wide a number is printed, which newer servers do not show.
        Some((name.to_owned(), kind.replace("bigint(20)", "bigint")))
    };
    plain.lines().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_read_in_the_words_of_each_server() {
        let old = "CREATE TABLE `t` (\n  `name` varbinary(512) NOT NULL,\n  `token` bigint(20) NOT NULL,\n  \
                   PRIMARY KEY (`name`),\n  UNIQUE KEY `t_token` (`name`,`token`)\n) ENGINE=InnoDB DEFAULT \
                   CHARSET=utf8mb4";
        let new = old.replace("bigint(20)", "bigint");
        for text in [old, &new] {
            let found = definitions(text);
            for part in [
                ("name", "varbinary(512)"),
                ("token", "bigint"),
                ("PRIMARY KEY", "(name)"),
                ("UNIQUE KEY", "(name,token)"),
                ("ENGINE", "InnoDB"),
            ] {
                let part = (part.0.to_owned(), part.1.to_owned());
                assert!(found.contains(&part), "{part:?} in {found:?}");
            }
        }
    }
}
