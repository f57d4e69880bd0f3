//! Runs the model on files with the bare bytes of its inputs, and writes output-0.raw and so on.
mod model;

use model::{Error, Model};

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    for (word, ends) in [("input", model::inputs()), ("output", model::outputs())].iter() {
        for one in ends {
            print!("{} {}: {}{:?}", word, one.name, one.dtype, one.shape);
            match one.smallest == one.shape {
                true => println!(),
                false => println!(", or from {:?} on: see Model::run_sizes", one.smallest),
            }
        }
    }
    if files.is_empty() {
        return Ok(());
    }
    let mut given = Vec::new();
    for file in &files {
        given.push(std::fs::read(file)?);
    }
    let arena = vec![0u64; (Model::arena_bytes() + 7) / 8];
    let mut program = Model::with_arena(1, arena)?;
    let slices: Vec<&[u8]> = given.iter().map(|bytes| &bytes[..]).collect();
    let made = program.run(&slices)?;
    println!("ran on {} thread", program.threads());
    for (i, bytes) in made.iter().enumerate() {
        std::fs::write(format!("output-{}.raw", i), bytes)?;
    }
    // A program of its own, which the library gives memory to, computes the same.
    if Model::new(2)?.run(&slices)? != made {
        return Err("two runs differ".into());
    }
    Ok(())
}

fn main() {
    if let Err(error) = run() {
        match error.downcast_ref::<Error>() {
            Some(known) => eprintln!("{} (code {})", known, known.code),
            None => eprintln!("{}", error),
        }
        std::process::exit(1);
    }
}
