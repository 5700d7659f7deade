//! `wire::toml`: what is read, what is refused and where. Each table row is one rule of TOML 1.0, or one of ours.

use sanduk::limits;
use sanduk::wire::toml::{self, Table, Value};

/// A plain form to compare with: strings quoted, tables in braces, in order of name.
fn show(value: &Value) -> String {
    match value {
        Value::String(s) => format!("{s:?}"),
        Value::Integer(n) => n.to_string(),
        Value::Boolean(b) => b.to_string(),
        Value::Array(list) => format!("[{}]", list.iter().map(show).collect::<Vec<_>>().join(" ")),
        Value::Table(table) => show_table(table),
    }
}

fn show_table(table: &Table) -> String {
    let entries: Vec<_> =
        table.entries.iter().map(|(name, entry)| format!("{name}={}", show(&entry.value))).collect();
    format!("{{{}}}", entries.join(" "))
}

fn read(text: &str) -> String {
    match toml::parse(text) {
        Ok(table) => show_table(&table),
        Err(bad) => bad.to_string(),
    }
}

#[test]
fn what_is_read() {
    for (text, shown) in [
        ("", "{}"),
        ("\u{feff}a = 1", "{a=1}"),
        ("# note\n\n  a = 1 # more\n\t# end", "{a=1}"),
        ("a=1\r\nb=2\r\n", "{a=1 b=2}"),
        ("a-b_1 = true\n\"c d\" = false\n'e\"' = 1\n1 = 2\n\"\" = 3", "{=3 1=2 a-b_1=true c d=false e\"=1}"),
        ("a.b.c = 1\na . b.\"d.e\" = 2", "{a={b={c=1 d.e=2}}}"),
        ("[a]\nb = 1\n[c.d]\ne = 2\n[ c . f ]\n[c]\ng = 3", "{a={b=1} c={d={e=2} f={} g=3}}"),
        ("[a]\nb.c = 1\nb.d = 2\n[a.b.e]\nf = 3", "{a={b={c=1 d=2 e={f=3}}}}"),
        ("a = \"x\\t\\\"\\\\\\u00e9\\U0001F642\\n\\b\\f\\r\"", "{a=\"x\\t\\\"\\\\é🙂\\n\\u{8}\\u{c}\\r\"}"),
        ("a = 'C:\\x \"y\" #'", "{a=\"C:\\\\x \\\"y\\\" #\"}"),
        ("a = \"\"\nb = ''", "{a=\"\" b=\"\"}"),
        ("a = \"\"\"\nx\n  y\"\"\"", "{a=\"x\\n  y\"}"),
        ("a = \"\"\"x\r\ny \\\r\n   \n  z\"\"\"", "{a=\"x\\ny z\"}"),
        ("a = \"\"\"\"x\"\"y\"\"\"\"\"", "{a=\"\\\"x\\\"\\\"y\\\"\\\"\"}"),
        ("a = '''\n'x''\\'''''", "{a=\"'x''\\\\''\"}"),
        ("a = \"\"\"\"\"\"\nb = ''''''", "{a=\"\" b=\"\"}"),
        ("a = \"\"\"x\\\"\"\"\"", "{a=\"x\\\"\"}"),
        ("a = [1, [2, 'x'], [], true,]", "{a=[1 [2 \"x\"] [] true]}"),
        ("a = [ # one\n 1 # two\n , # three\n 2\n\n]\nb = 1", "{a=[1 2] b=1}"),
        (
            "a = +1_000\nb = -17\nc = 0\nd = -0\ne = 0xDEAD_beef\nf = 0o17\ng = 0b1_0",
            "{a=1000 b=-17 c=0 d=0 e=3735928559 f=15 g=2}",
        ),
        (
            "a = 9223372036854775807\nb = -9223372036854775808",
            "{a=9223372036854775807 b=-9223372036854775808}",
        ),
    ] {
        assert_eq!(read(text), shown, "{text:?}");
    }
}

#[test]
fn what_is_refused_and_where() {
    for (text, why) in [
        ("a = 1\na = 2", "2:1: `a` is set twice"),
        ("a.b = 1\na.b = 2", "2:3: `b` is set twice"),
        ("a = 1\na.b = 2", "2:1: `a` is already a value, not a table"),
        ("a = 1\n[a]", "2:2: `a` is already a value, not a table"),
        ("[a]\n[a]", "2:2: `a` is defined twice"),
        ("[a]\nb = 1\n[a.b]", "3:4: `b` is already a value, not a table"),
        ("a.b = 1\n[a]", "2:2: `a` is defined twice"),
        ("[a.b]\nc = 1\n[a]\nb.d = 1", "4:1: `b` is already a table of its own"),
        ("[a.b]\n[a]\nb = 1", "3:1: `b` is set twice"),
        ("a = 1.5", "1:5: floats are not read here"),
        ("a = 1e3", "1:5: floats are not read here"),
        ("a = -inf", "1:5: floats are not read here"),
        ("a = nan", "1:5: floats are not read here"),
        ("a = 1979-05-27", "1:5: dates and times are not read here; write a string"),
        ("a = 1979-05-27T07:32:00Z", "1:5: dates and times are not read here; write a string"),
        ("a = 07:32:00", "1:5: dates and times are not read here; write a string"),
        ("a = {b = 1}", "1:5: inline tables are not read here; write a [table]"),
        ("[[a]]", "1:1: arrays of tables are not read here"),
        ("a = ", "1:5: a value should stand here"),
        ("a =\nb = 1", "1:4: a value should stand here"),
        ("a = yes", "1:5: not a value; a string needs quotes"),
        ("a = True", "1:5: not a value; a string needs quotes"),
        ("a", "1:2: a key is followed by ="),
        ("= 1", "1:1: a key of letters, digits, - and _, or a quoted one, should stand here"),
        ("a. = 1", "1:4: a key of letters, digits, - and _, or a quoted one, should stand here"),
        ("ä = 1", "1:1: a key of letters, digits, - and _, or a quoted one, should stand here"),
        ("[]", "1:2: a key of letters, digits, - and _, or a quoted one, should stand here"),
        ("[a", "1:3: a table's name is followed by ]"),
        ("[a] b = 1", "1:5: the line should end here"),
        ("a = 1 b = 2", "1:7: the line should end here"),
        ("a = \"x\" y", "1:9: the line should end here"),
        ("a = \"x\nb\"", "1:7: a string ends on its line, without control characters"),
        ("a = 'x", "1:7: a string ends on its line, without control characters"),
        ("a = \"\u{1}\"", "1:6: a string ends on its line, without control characters"),
        ("a = \"\"\"x\"\"", "1:11: a long string ends with three quotes, without control characters"),
        ("a = \"\"\"x\ry\"\"\"", "1:9: a long string ends with three quotes, without control characters"),
        ("a = \"\\x41\"", "1:6: no such escape"),
        ("a = \"\\ud800\"", "1:6: an escape that is no character"),
        ("a = \"\\u12\"", "1:6: an escape that is no character"),
        ("a = \"ä\\q\"", "1:7: no such escape"),
        ("a = 1 # \u{7f}", "1:9: a control character"),
        ("a = 1\rb = 2", "1:6: a control character"),
        ("a = 012", "1:5: a number does not begin with 0"),
        ("a = -01", "1:5: a number does not begin with 0"),
        ("a = 1__0", "1:5: not a number"),
        ("a = 1_", "1:5: not a number"),
        ("a = 12a", "1:5: not a number"),
        ("a = ++1", "1:5: not a number"),
        ("a = 0x", "1:5: not a number"),
        ("a = 0x-1", "1:5: not a number"),
        ("a = 0b12", "1:5: not a number"),
        ("a = 9223372036854775808", "1:5: a number that 64 bits do not hold"),
        ("a = 0x8000000000000000", "1:5: a number that 64 bits do not hold"),
        ("a = [1 2]", "1:8: an array goes on with , or ends with ]"),
        ("a = [1,,2]", "1:8: a value should stand here"),
        ("a = [,]", "1:6: a value should stand here"),
        ("a = [1,\n", "2:1: a value should stand here"),
        ("\"a\u{1b}\" = 1", "1:3: a string ends on its line, without control characters"),
        ("\"\\u001b[2J\" = 1\n\"\\u001b[2J\" = 1", "2:1: `\\u{1b}[2J` is set twice"),
    ] {
        assert_eq!(read(text), why, "{text:?}");
    }
}

#[test]
fn limits_hold_from_both_sides() {
    let arrays = |n: usize| format!("a = {}{}", "[".repeat(n), "]".repeat(n));
    assert!(toml::parse(&arrays(limits::TOML_DEPTH)).is_ok());
    assert_eq!(read(&arrays(limits::TOML_DEPTH + 1)), "1:21: arrays are nested too deep");
    let path = |n: usize| format!("[{}]", vec!["a"; n].join("."));
    assert!(toml::parse(&path(limits::TOML_DEPTH)).is_ok());
    assert_eq!(read(&path(limits::TOML_DEPTH + 1)), "1:34: tables are nested too deep");
    let size = |n: usize| format!("a = '{}'", "x".repeat(n - 6));
    assert!(toml::parse(&size(limits::TOML_BYTES)).is_ok());
    assert_eq!(read(&size(limits::TOML_BYTES + 1)), "1:1: the file is over the limit");
    // Many keys and unclosed brackets cost no more than their bytes.
    let many: String = (0..100_000).map(|n| format!("k{n}=1\n")).collect();
    assert_eq!(toml::parse(&many).unwrap().entries.len(), 100_000);
    assert!(toml::parse(&"[".repeat(limits::TOML_BYTES)).is_err());
    assert!(toml::parse(&"a=[".repeat(100_000)).is_err());
}

#[test]
fn an_entry_knows_its_place() {
    let table = toml::parse("a = 1\n\n[b]\n  c.d = 'x'").unwrap();
    assert_eq!(table.value("a"), Some(&Value::Integer(1)));
    assert_eq!(table.value("x"), None);
    let Some(Value::Table(b)) = table.value("b") else { panic!() };
    let Some(Value::Table(c)) = b.value("c") else { panic!() };
    let (at, d) = (b.entries["c"].at, c.entries["d"].at);
    assert_eq!(((at.line, at.column), (d.line, d.column)), ((4, 3), (4, 5)));
}
