//! Compile tests of the attribute: valid uses, and each error with its message.

#[test]
fn messages_are_as_recorded() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
