// Command mkimage makes a container image from programs that are already built, without a container engine.
//
// The result is one tar file, both an OCI image layout and a docker archive, so that `ctr image import`, `docker load`,
// `podman load` and `kind load image-archive` all take it. Usage:
//
//	mkimage -out FILE.tar -ref localhost/NAME:TAG -entrypoint /path[,arg…] [-user UID:GID] [-env K=V]…
//	        [-file SRC:DEST[:MODE]]… [-libs]
//
// With -libs, the shared libraries and the loader of every dynamic program among the files are packed too, under the paths
// at which the loader found them on this machine. Only libraries on the loader's built-in path or at an RPATH are found
// again inside the image, which has no ld.so.cache; for others, add -env LD_LIBRARY_PATH=DIR.
//
// Every image has /tmp, users root and nonroot (65532), /etc/nsswitch.conf and this machine's CA certificates. The same
// inputs give the same bytes: entries are sorted, and all times are SOURCE_DATE_EPOCH, or 1970 where that is unset.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// caBundle is where Debian, Alpine and most others keep the CA certificates in one file, and where Go and rustls look.
const caBundle = "/etc/ssl/certs/ca-certificates.crt"

func main() {
	if err := run(os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	opts, err := parse(args)
	if err != nil {
		return err
	}
	epoch, err := sourceDate(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	files, err := opts.load()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(files, func(e entry) bool { return e.Path == opts.entrypoint[0] && !e.Dir }) {
		return fmt.Errorf("the entrypoint %s is not in the image; add it with -file", opts.entrypoint[0])
	}
	arch, err := architecture(files)
	if err != nil {
		return err
	}
	layer, err := layerTar(files, epoch)
	if err != nil {
		return err
	}
	image := imageTar(spec{
		Ref: opts.ref, Entrypoint: opts.entrypoint, User: opts.user, Env: opts.env, Arch: arch, Created: epoch,
	}, layer)
	return writeFile(opts.out, image)
}

// options are the command line, checked.
type options struct {
	out, ref, user  string
	entrypoint, env []string
	files           []fileArg
	libs            bool
}

// fileArg is one -file: a file of this machine and its place in the image. Mode 0 means: 0755 for a program, 0644 else.
type fileArg struct {
	src, dest string
	mode      int64
}

func parse(args []string) (options, error) {
	var o options
	var entrypoint string
	fs := flag.NewFlagSet("mkimage", flag.ContinueOnError)
	fs.StringVar(&o.out, "out", "", "the tar `file` to write")
	fs.StringVar(&o.ref, "ref", "", "the image's `name:tag`, such as localhost/worker:dev")
	fs.StringVar(&entrypoint, "entrypoint", "", "the program and its first arguments, `/path[,arg...]`")
	fs.StringVar(&o.user, "user", "65532:65532", "the `uid:gid` that the image runs as")
	fs.Func("env", "a variable of the image's environment, `K=V`; may be repeated", func(s string) error {
		if i := strings.IndexByte(s, '='); i < 1 {
			return errors.New("want K=V")
		}
		o.env = append(o.env, s)
		return nil
	})
	fs.Func("file", "a file to pack, `src:dest[:mode]`, mode in octal; may be repeated", func(s string) error {
		f, err := parseFile(s)
		o.files = append(o.files, f)
		return err
	})
	fs.BoolVar(&o.libs, "libs", false, "pack the shared libraries that the files need")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q; files are given as -file SRC:DEST", fs.Arg(0))
	case o.out == "":
		return o, errors.New("-out is missing; give the tar file to write")
	case !strings.Contains(path.Base(o.ref), ":"):
		return o, fmt.Errorf("-ref %q has no tag; give NAME:TAG", o.ref)
	case !strings.HasPrefix(entrypoint, "/"):
		return o, fmt.Errorf("-entrypoint %q must begin with the absolute path of a program", entrypoint)
	}
	o.entrypoint = strings.Split(entrypoint, ",")
	return o, nil
}

func parseFile(s string) (fileArg, error) {
	parts := strings.Split(s, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || !path.IsAbs(parts[1]) || path.Clean(parts[1]) == "/" {
		return fileArg{}, errors.New("want SRC:DEST[:MODE] with an absolute DEST")
	}
	f := fileArg{src: parts[0], dest: path.Clean(parts[1])}
	if len(parts) == 3 {
		mode, err := strconv.ParseInt(parts[2], 8, 64)
		if err != nil || mode < 1 || mode > 0o7777 {
			return fileArg{}, fmt.Errorf("mode %q is not an octal number such as 0755", parts[2])
		}
		f.mode = mode
	}
	return f, nil
}

// load reads all that goes into the image: the named files, their libraries, and what every image has.
func (o options) load() ([]entry, error) {
	certs, err := os.ReadFile(caBundle)
	if err != nil {
		return nil, fmt.Errorf("%w; install the package ca-certificates", err)
	}
	entries := append(baseEntries(), entry{Path: caBundle, Mode: 0o644, Data: certs})
	for _, f := range o.files {
		e, err := readEntry(f.src, f.dest, f.mode)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
		if o.libs && isDynamic(e.Data) {
			libs, err := libraries(f.src)
			if err != nil {
				return nil, err
			}
			for _, lib := range libs {
				e, err := readEntry(lib, lib, 0o755)
				if err != nil {
					return nil, err
				}
				entries = append(entries, e)
			}
		}
	}
	return entries, nil
}

// readEntry reads one file, through symbolic links: the image holds no links.
func readEntry(src, dest string, mode int64) (entry, error) {
	info, err := os.Stat(src)
	if err != nil {
		return entry{}, err
	}
	if !info.Mode().IsRegular() {
		return entry{}, fmt.Errorf("%s is not a regular file; name each file with a -file of its own", src)
	}
	data, err := os.ReadFile(src)
	if err != nil {
		return entry{}, err
	}
	if mode == 0 {
		mode = 0o644
		if info.Mode().Perm()&0o111 != 0 {
			mode = 0o755
		}
	}
	return entry{Path: path.Clean(dest), Mode: mode, Data: data}, nil
}

func sourceDate(value string) (time.Time, error) {
	if value == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%q is not a number of seconds since 1970", value)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// writeFile replaces out in one step, so that an interrupted run leaves no half image behind. A file that is the same
// already is left alone, with its time, by which others see that nothing is to be loaded again.
func writeFile(out string, data []byte) error {
	if old, err := os.ReadFile(out); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(out), ".mkimage-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.Write(data); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Chmod(0o644); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), out)
}
