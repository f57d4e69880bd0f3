// Runs the model on files with the bare bytes of its inputs, and writes output-0.raw and so on.
package main

import (
	"fmt"
	"os"
)

func run(files []string) error {
	for _, one := range Inputs() {
		fmt.Printf("input %s: %s%v\n", one.Name, one.Dtype, one.Shape)
	}
	for _, one := range Outputs() {
		fmt.Printf("output %s: %s%v\n", one.Name, one.Dtype, one.Shape)
	}
	if len(files) == 0 {
		return nil
	}
	given := [][]byte{}
	for _, file := range files {
		bytes, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		given = append(given, bytes)
	}
	model, err := NewModel(2)
	if err != nil {
		return err
	}
	defer model.Close()
	made, err := model.Run(given...)
	if err != nil {
		return err
	}
	for i, bytes := range made {
		if err := os.WriteFile(fmt.Sprintf("output-%d.raw", i), bytes, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
