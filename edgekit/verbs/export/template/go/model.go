package main

// #cgo CFLAGS: -I${SRCDIR}/../src
// #cgo LDFLAGS: -L${SRCDIR}/../lib -l:model.so -Wl,-rpath,${SRCDIR}/../lib
// #include <stdlib.h>
// #include "edgekit.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Tensor is an input or an output; Dtype is as numpy names it. Shape has the largest size of each
// dimension, and Smallest the smallest, which is the same where it does not vary.
type Tensor struct {
	Name, Dtype     string
	Shape, Smallest []int64
	Bytes           int
}

// Sized is the bytes of an input or output, and its shape.
type Sized struct {
	Bytes []byte
	Shape []int64
}

// Error is what the library says: Code is one of edgekit.h, or -1 for an input that does not fit.
type Error struct {
	Code    int
	Message string
}

func (e *Error) Error() string { return e.Message }

// Model is one program of the model: one goroutine at a time may run it.
type Model struct {
	program *C.edgekit_program
}

func tensors(from *C.edgekit_tensor, count C.uint, isOutput C.int) []Tensor {
	found := []Tensor{}
	info := C.edgekit_model_info()
	for i, one := range unsafe.Slice(from, int(count)) {
		shape := []int64{}
		if one.rank > 0 {
			for _, extent := range unsafe.Slice(one.shape, int(one.rank)) {
				shape = append(shape, int64(extent))
			}
		}
		smallest := append([]int64{}, shape...)
		for _, each := range unsafe.Slice(info.varying, int(info.varyings)) {
			if each.is_output == isOutput && int(each.tensor) == i {
				smallest[each.dimension] = int64(each.smallest)
			}
		}
		name, dtype := C.GoString(one.name), C.GoString(one.dtype)
		found = append(found, Tensor{name, dtype, shape, smallest, int(one.bytes)})
	}
	return found
}

// Inputs returns what the model takes. State is an input and an output.
func Inputs() []Tensor {
	info := C.edgekit_model_info()
	return tensors(info.input, info.model_inputs, 0)
}

// Outputs returns what the model makes.
func Outputs() []Tensor {
	info := C.edgekit_model_info()
	return tensors(info.output, info.model_outputs, 1)
}

// NewModel makes a program; 0 threads takes one for each core. Close frees it.
func NewModel(threads int) (*Model, error) {
	if C.edgekit_model_info()._interface != C.EDGEKIT_INTERFACE {
		return nil, &Error{-1, "the library has another interface than edgekit.h"}
	}
	program := C.edgekit_create(nil, C.int(threads))
	if program == nil {
		return nil, &Error{C.EDGEKIT_NO_MEMORY, "there is no memory for the model"}
	}
	return &Model{program: program}, nil
}

func elements(shape []int64) int {
	count := 1
	for _, size := range shape {
		count *= int(size)
	}
	return count
}

// RunSizes runs the model on inputs whose sizes may vary, and returns outputs of their true sizes.
func (m *Model) RunSizes(given ...Sized) ([]Sized, error) {
	expected, gives := Inputs(), Outputs()
	if len(given) != len(expected) {
		text := fmt.Sprintf("the model takes %d inputs, not %d", len(expected), len(given))
		return nil, &Error{-1, text}
	}
	// C may not keep Go's memory, so that all lies in C's while the model runs.
	var kept []unsafe.Pointer
	defer func() {
		for _, one := range kept {
			C.free(one)
		}
	}()
	take := func(bytes int) unsafe.Pointer {
		place := C.malloc(C.size_t(bytes + 8))
		kept = append(kept, place)
		return place
	}
	table := func(count int) (*unsafe.Pointer, []unsafe.Pointer) {
		place := (*unsafe.Pointer)(take(count * 8))
		return place, unsafe.Slice(place, count)
	}
	inputs, from := table(len(expected))
	shapes, sizes := table(len(expected))
	outputs, to := table(len(gives))
	made, results := table(len(gives))
	for i, one := range expected {
		fits := len(given[i].Shape) == len(one.Shape)
		for k := 0; fits && k < len(one.Shape); k++ {
			size := given[i].Shape[k]
			fits = one.Smallest[k] <= size && size <= one.Shape[k]
		}
		if !fits || len(given[i].Bytes) != one.Bytes/max(elements(one.Shape), 1)*elements(given[i].Shape) {
			return nil, &Error{-1, fmt.Sprintf("the input %s has no such bytes and shape", one.Name)}
		}
		from[i], sizes[i] = take(len(given[i].Bytes)), take(8*len(one.Shape))
		copy(unsafe.Slice((*byte)(from[i]), len(given[i].Bytes)), given[i].Bytes)
		copy(unsafe.Slice((*int64)(sizes[i]), len(one.Shape)), given[i].Shape)
	}
	for i, one := range gives {
		to[i], results[i] = take(one.Bytes), take(8*len(one.Shape))
	}
	code := C.edgekit_run_sizes(m.program, inputs, (**C.int64_t)(unsafe.Pointer(shapes)), outputs,
		(**C.int64_t)(unsafe.Pointer(made)))
	if code != C.EDGEKIT_OK {
		return nil, &Error{int(code), C.GoString(C.edgekit_error(m.program))}
	}
	found := []Sized{}
	for i, one := range gives {
		shape := append([]int64{}, unsafe.Slice((*int64)(results[i]), len(one.Shape))...)
		bytes := one.Bytes / max(elements(one.Shape), 1) * elements(shape)
		found = append(found, Sized{C.GoBytes(to[i], C.int(bytes)), shape})
	}
	return found, nil
}

func max(a, b int) int {
	if a > b {
		return a
	}
	return b
}

// Run runs the model on the bytes of its inputs, and returns the bytes of its outputs: all have their
// largest sizes.
func (m *Model) Run(given ...[]byte) ([][]byte, error) {
	expected := Inputs()
	if len(given) != len(expected) {
		text := fmt.Sprintf("the model takes %d inputs, not %d", len(expected), len(given))
		return nil, &Error{-1, text}
	}
	for i, one := range expected {
		if len(given[i]) != one.Bytes {
			const text = "the input %s has %d bytes, not %d"
			return nil, &Error{-1, fmt.Sprintf(text, one.Name, one.Bytes, len(given[i]))}
		}
		if C.edgekit_model_info().varyings == 0 && one.Bytes > 0 {
			place := C.edgekit_input(m.program, C.uint(i))
			copy(unsafe.Slice((*byte)(place), one.Bytes), given[i])
		}
	}
	if C.edgekit_model_info().varyings > 0 {
		sized := []Sized{}
		for i, one := range expected {
			sized = append(sized, Sized{given[i], one.Shape})
		}
		found, err := m.RunSizes(sized...)
		made := [][]byte{}
		for _, one := range found {
			made = append(made, one.Bytes)
		}
		return made, err
	}
	if code := C.edgekit_run(m.program, nil, nil); code != C.EDGEKIT_OK {
		return nil, &Error{int(code), C.GoString(C.edgekit_error(m.program))}
	}
	made := [][]byte{}
	for i, one := range Outputs() {
		made = append(made, C.GoBytes(C.edgekit_output(m.program, C.uint(i)), C.int(one.Bytes)))
	}
	return made, nil
}

// Threads returns how many threads an inference takes.
func (m *Model) Threads() int { return int(C.edgekit_threads(m.program)) }

// Close frees the model's memory.
func (m *Model) Close() { C.edgekit_destroy(m.program) }
