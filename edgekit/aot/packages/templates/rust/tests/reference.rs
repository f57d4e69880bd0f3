//! Runs the reference inputs and compares the outputs with those of another runtime.
#![cfg(feature = "reference")]

extern "C" {
    fn {{name}}_reference() -> i32;
}

#[test]
fn the_outputs_are_the_expected_ones() {
    assert!({{crate}}::is_sound());
    assert_eq!(unsafe { {{name}}_reference() }, 0);
}
