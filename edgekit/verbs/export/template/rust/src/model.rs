//! The model of edgekit.h in Rust: loaded once, run often. State is an input and an output.
use std::ffi::CStr;
use std::os::raw::{c_char, c_int, c_uint, c_void};

#[repr(C)]
struct CTensor {
    name: *const c_char,
    dtype: *const c_char,
    rank: c_int,
    shape: *const i64,
    bytes: usize,
}

#[repr(C)]
struct CVarying {
    is_output: c_int,
    tensor: c_uint,
    dimension: c_int,
    smallest: i64,
    length_is_output: c_int,
    length: c_uint,
}

#[repr(C)]
struct CInfo {
    interface: c_int,
    model: *const c_char,
    inputs: c_uint,
    outputs: c_uint,
    steps: c_uint,
    input: *const CTensor,
    output: *const CTensor,
    step: *const *const c_char,
    arena_bytes: usize,
    thread_bytes: usize,
    model_inputs: c_uint,
    model_outputs: c_uint,
    varyings: c_uint,
    varying: *const CVarying,
}

extern "C" {
    fn edgekit_model_info() -> *const CInfo;
    fn edgekit_create(arena: *mut c_void, threads: c_int) -> *mut c_void;
    fn edgekit_destroy(program: *mut c_void);
    fn edgekit_run(
        program: *mut c_void,
        inputs: *const *const c_void,
        outputs: *const *mut c_void,
    ) -> c_int;
    fn edgekit_run_sizes(
        program: *mut c_void,
        inputs: *const *const c_void,
        shapes: *const *const i64,
        outputs: *const *mut c_void,
        made: *const *mut i64,
    ) -> c_int;
    fn edgekit_error(program: *const c_void) -> *const c_char;
    fn edgekit_threads(program: *const c_void) -> c_int;
}

/// An input or an output; `dtype` is as numpy names it.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub name: String,
    pub dtype: String,
    /// The largest size of each dimension.
    pub shape: Vec<i64>,
    /// The smallest size of each dimension; the same as in `shape` where it does not vary.
    pub smallest: Vec<i64>,
    pub bytes: usize,
}

/// What the library says: a code of edgekit.h, or -1 for an input that does not fit.
#[derive(Debug)]
pub struct Error {
    pub code: i32,
    pub message: String,
}

impl std::fmt::Display for Error {
    fn fmt(&self, to: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(to, "{}", self.message)
    }
}

impl std::error::Error for Error {}

/// One program of the model. It may move to another thread; each thread has one of its own.
pub struct Model {
    program: *mut c_void,
    _arena: Vec<u64>,
}

unsafe impl Send for Model {}

unsafe fn text(from: *const c_char) -> String {
    CStr::from_ptr(from).to_string_lossy().into_owned()
}

unsafe fn tensors(from: *const CTensor, count: c_uint, is_output: c_int) -> Vec<Tensor> {
    let info = &*edgekit_model_info();
    (0..count as usize)
        .map(|i| {
            let one = &*from.add(i);
            let shape = match one.rank {
                0 => Vec::new(), // of a scalar the pointer may be null
                rank => std::slice::from_raw_parts(one.shape, rank as usize).to_vec(),
            };
            let mut smallest = shape.clone();
            for each in (0..info.varyings as usize).map(|k| &*info.varying.add(k)) {
                if each.is_output == is_output && each.tensor as usize == i {
                    smallest[each.dimension as usize] = each.smallest;
                }
            }
            let (name, dtype) = (text(one.name), text(one.dtype));
            Tensor { name, dtype, shape, smallest, bytes: one.bytes }
        })
        .collect()
}

pub fn inputs() -> Vec<Tensor> {
    let info = unsafe { &*edgekit_model_info() };
    unsafe { tensors(info.input, info.model_inputs, 0) }
}

pub fn outputs() -> Vec<Tensor> {
    let info = unsafe { &*edgekit_model_info() };
    unsafe { tensors(info.output, info.model_outputs, 1) }
}

impl Model {
    /// Makes a program with memory of its own; 0 threads takes one for each core.
    pub fn new(threads: i32) -> Result<Model, Error> {
        Model::with_arena(threads, Vec::new())
    }

    /// Makes a program in an arena of the caller's; an empty one lets the library allocate it.
    pub fn with_arena(threads: i32, mut arena: Vec<u64>) -> Result<Model, Error> {
        let info = unsafe { &*edgekit_model_info() };
        if info.interface != {{interface}} {
            let message = "the library has another interface than this program".to_string();
            return Err(Error { code: -1, message });
        }
        let mut place = std::ptr::null_mut();
        if !arena.is_empty() {
            let start = (arena.as_ptr() as usize).wrapping_neg() % {{alignment}} / 8;
            if arena.len() * 8 < start * 8 + info.arena_bytes {
                let message = format!("an arena is {} bytes", Model::arena_bytes());
                return Err(Error { code: -1, message });
            }
            place = arena[start..].as_mut_ptr() as *mut c_void;
        }
        let program = unsafe { edgekit_create(place, threads) };
        if program.is_null() {
            return Err(Error { code: 1, message: "there is no memory for the model".to_string() });
        }
        Ok(Model { program, _arena: arena })
    }

    /// The bytes of an arena, with those that align it.
    pub fn arena_bytes() -> usize {
        unsafe { (*edgekit_model_info()).arena_bytes + {{alignment}} }
    }

    pub fn threads(&self) -> i32 {
        unsafe { edgekit_threads(self.program) }
    }

    /// Runs the model on the bytes and shapes of its inputs, whose sizes may vary, and returns the
    /// bytes and shapes of its outputs.
    pub fn run_sizes(
        &mut self,
        given: &[(&[u8], &[i64])],
    ) -> Result<Vec<(Vec<u8>, Vec<i64>)>, Error> {
        let (takes, gives) = (inputs(), outputs());
        for (place, one) in takes.iter().enumerate() {
            let whole = one.shape.iter().product::<i64>().max(1);
            let fits = given.get(place).map_or(false, |(bytes, shape)| {
                let elements = shape.iter().product::<i64>();
                shape.len() == one.shape.len()
                    && shape.iter().all(|size| *size >= 0)
                    && bytes.len() as i64 == one.bytes as i64 / whole * elements
            });
            if !fits || given.len() != takes.len() {
                let message = format!("the input {} has no such bytes and shape", one.name);
                return Err(Error { code: -1, message });
            }
        }
        let mut made: Vec<(Vec<u8>, Vec<i64>)> =
            gives.iter().map(|one| (vec![0; one.bytes], one.shape.clone())).collect();
        let from: Vec<_> = given.iter().map(|one| one.0.as_ptr() as *const c_void).collect();
        let sizes: Vec<_> = given.iter().map(|one| one.1.as_ptr()).collect();
        let to: Vec<_> = made.iter_mut().map(|one| one.0.as_mut_ptr() as *mut c_void).collect();
        let shapes: Vec<_> = made.iter_mut().map(|one| one.1.as_mut_ptr()).collect();
        let ends = (from.as_ptr(), sizes.as_ptr(), to.as_ptr(), shapes.as_ptr());
        let code = unsafe { edgekit_run_sizes(self.program, ends.0, ends.1, ends.2, ends.3) };
        if code != 0 {
            let message = unsafe { text(edgekit_error(self.program)) };
            return Err(Error { code, message });
        }
        for (one, (bytes, shape)) in gives.iter().zip(&mut made) {
            let whole = one.shape.iter().product::<i64>().max(1);
            bytes.truncate((one.bytes as i64 / whole * shape.iter().product::<i64>()) as usize);
        }
        Ok(made)
    }

    /// Runs the model on the bytes of its inputs, and returns the bytes of its outputs: all have
    /// their largest sizes.
    pub fn run(&mut self, given: &[&[u8]]) -> Result<Vec<Vec<u8>>, Error> {
        let expected = inputs();
        if given.len() != expected.len() {
            let message = format!("the model takes {} inputs, not {}", expected.len(), given.len());
            return Err(Error { code: -1, message });
        }
        for (one, bytes) in expected.iter().zip(given) {
            if bytes.len() != one.bytes {
                let (wanted, found) = (one.bytes, bytes.len());
                let message = format!("the input {} has {} bytes, not {}", one.name, wanted, found);
                return Err(Error { code: -1, message });
            }
        }
        if unsafe { (*edgekit_model_info()).varyings } > 0 {
            let sized: Vec<_> =
                given.iter().zip(&expected).map(|(bytes, one)| (*bytes, &one.shape[..])).collect();
            return Ok(self.run_sizes(&sized)?.into_iter().map(|one| one.0).collect());
        }
        let mut made: Vec<Vec<u8>> = outputs().iter().map(|one| vec![0; one.bytes]).collect();
        let from: Vec<_> = given.iter().map(|bytes| bytes.as_ptr() as *const c_void).collect();
        let to: Vec<_> = made.iter_mut().map(|bytes| bytes.as_mut_ptr() as *mut c_void).collect();
        let code = unsafe { edgekit_run(self.program, from.as_ptr(), to.as_ptr()) };
        if code != 0 {
            let message = unsafe { text(edgekit_error(self.program)) };
            return Err(Error { code, message });
        }
        Ok(made)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { edgekit_destroy(self.program) }
    }
}
