//! The model {{name}}, as C made by edgekit. It needs no operating system and no allocator.
#![no_std]

use core::ffi::{c_int, c_void};

/// The memory of the model's tensors.
#[repr(C, align(64))]
pub struct Arena([u8; {{arena}}]);

impl Arena {
    pub const fn new() -> Self {
        Arena([0; {{arena}}])
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

#[repr(C)]
struct Inputs([*const c_void; {{inputs}}]);
#[repr(C)]
struct Outputs([*mut c_void; {{outputs}}]);

extern "C" {
    fn {{name}}_run(inputs: *const Inputs, outputs: *const Outputs, arena: *mut u8) -> c_int;
    fn {{name}}_check() -> c_int;
}

/// Tells whether the C was compiled for this CPU.
pub fn is_sound() -> bool {
    unsafe { {{name}}_check() == 0 }
}

/// Runs the model. The error is the code of the C.
pub fn run(arena: &mut Arena{{parameters}}) -> Result<(), i32> {
    let inputs = Inputs([{{given}}]);
    let outputs = Outputs([{{made}}]);
    match unsafe { {{name}}_run(&inputs, &outputs, arena.0.as_mut_ptr()) } {
        0 => Ok(()),
        code => Err(code),
    }
}
