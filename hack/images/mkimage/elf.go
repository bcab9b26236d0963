package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// isDynamic reports whether data is a program or library that a loader links at its start.
func isDynamic(data []byte) bool {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return false
	}
	defer f.Close()
	needed, err := f.DynString(elf.DT_NEEDED)
	return err == nil && len(needed) > 0
}

// architectures are the names that OCI takes from Go's GOARCH.
var architectures = map[elf.Machine]string{
	elf.EM_X86_64:  "amd64",
	elf.EM_AARCH64: "arm64",
	elf.EM_ARM:     "arm",
	elf.EM_386:     "386",
	elf.EM_RISCV:   "riscv64",
	elf.EM_S390:    "s390x",
	elf.EM_PPC64:   "ppc64le",
}

// architecture is that of the programs among the entries, which need not be this machine's.
func architecture(entries []entry) (string, error) {
	arch, from := "", ""
	for _, e := range entries {
		f, err := elf.NewFile(bytes.NewReader(e.Data))
		if err != nil {
			continue // not a program
		}
		f.Close()
		name, known := architectures[f.Machine]
		if !known {
			return "", fmt.Errorf("%s is a program for %v, which has no architecture name here; add it to the table", e.Path, f.Machine)
		}
		if arch != "" && arch != name {
			return "", fmt.Errorf("%s is for %s and %s for %s; an image has one architecture", from, arch, e.Path, name)
		}
		arch, from = name, e.Path
	}
	if arch == "" {
		return runtime.GOARCH, nil
	}
	return arch, nil
}

// libraries are the paths of the shared libraries and the loader that a program needs, as the loader itself finds them.
// ldd runs the program's own loader, so name only programs that you would also run.
func libraries(program string) ([]string, error) {
	if !strings.Contains(program, "/") {
		program = "./" + program
	}
	cmd := exec.Command("ldd", program)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w: %s", program, err, bytes.TrimSpace(out))
	}
	return parseLdd(program, string(out))
}

// parseLdd reads the lines of ldd: `name => /path (0x…)`, `/loader (0x…)`, and `linux-vdso.so.1 (0x…)`, which is the
// kernel's and no file.
func parseLdd(program, out string) ([]string, error) {
	var libs []string
	for _, line := range strings.Split(out, "\n") {
		name, found, linked := strings.Cut(strings.TrimSpace(line), " => ")
		if !linked {
			found = name
		}
		if linked && strings.HasPrefix(found, "not found") {
			return nil, fmt.Errorf("%s needs %s, which is not on this machine; install its package", program, name)
		}
		if lib, _, _ := strings.Cut(found, " ("); strings.HasPrefix(lib, "/") {
			libs = append(libs, lib)
		}
	}
	return libs, nil
}
