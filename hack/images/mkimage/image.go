package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"
	"time"
)

// entry is one file or, where Dir is set, one directory of the image.
type entry struct {
	Path string // absolute and clean
	Mode int64
	Data []byte
	Dir  bool
}

// spec is what the image's configuration says beside its layer.
type spec struct {
	Ref, User, Arch string
	Entrypoint, Env []string
	Created         time.Time
}

// baseEntries are in every image: programs expect a /tmp, libraries look up their own user, and without nsswitch.conf some
// resolvers ask DNS before /etc/hosts.
func baseEntries() []entry {
	return []entry{
		{Path: "/tmp", Mode: 0o1777, Dir: true},
		{Path: "/etc/passwd", Mode: 0o644, Data: []byte(
			"root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
		{Path: "/etc/group", Mode: 0o644, Data: []byte("root:x:0:\nnonroot:x:65532:\n")},
		{Path: "/etc/nsswitch.conf", Mode: 0o644, Data: []byte("passwd: files\ngroup: files\nhosts: files dns\n")},
	}
}

// layerTar packs the entries and the directories above them, sorted, owned by root, all with one time. Two equal entries
// count once; two that differ under one path are an error.
func layerTar(entries []entry, mtime time.Time) ([]byte, error) {
	all := map[string]entry{}
	for _, e := range entries {
		old, seen := all[e.Path]
		if seen && (old.Dir != e.Dir || old.Mode != e.Mode || !bytes.Equal(old.Data, e.Data)) {
			return nil, fmt.Errorf("two different files for %s in the image; drop one of them", e.Path)
		}
		all[e.Path] = e
	}
	for _, e := range entries {
		for dir := path.Dir(e.Path); dir != "/"; dir = path.Dir(dir) {
			above, seen := all[dir]
			if seen && !above.Dir {
				return nil, fmt.Errorf("%s cannot be both a file and the directory of %s", dir, e.Path)
			}
			if !seen {
				all[dir] = entry{Path: dir, Mode: 0o755, Dir: true}
			}
		}
	}
	paths := make([]string, 0, len(all))
	for p := range all {
		paths = append(paths, p)
	}
	sort.Strings(paths)

	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, p := range paths {
		e := all[p]
		h := tar.Header{Name: strings.TrimPrefix(p, "/"), Mode: e.Mode, ModTime: mtime, Typeflag: tar.TypeReg, Size: int64(len(e.Data))}
		if e.Dir {
			h.Name, h.Typeflag = h.Name+"/", tar.TypeDir
		}
		if err := add(w, h, e.Data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func add(w *tar.Writer, h tar.Header, data []byte) error {
	if err := w.WriteHeader(&h); err != nil {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	_, err := w.Write(data)
	return err
}

// imageTar makes the archive of one image with one uncompressed layer. It holds the OCI layout (oci-layout, index.json,
// blobs) and docker's own table of contents (manifest.json), which point to the same blobs.
func imageTar(s spec, layer []byte) []byte {
	type object = map[string]any
	blob := func(data []byte) string { return "blobs/sha256/" + hash(data) }
	platform := object{"architecture": s.Arch, "os": "linux"}
	config := encode(object{
		"architecture": s.Arch,
		"os":           "linux",
		"created":      s.Created.Format(time.RFC3339),
		"config": object{
			"Entrypoint": s.Entrypoint,
			"Env":        environment(s.Env),
			"User":       s.User,
			"WorkingDir": "/",
		},
		"rootfs":  object{"type": "layers", "diff_ids": []string{"sha256:" + hash(layer)}},
		"history": []object{{"created": s.Created.Format(time.RFC3339), "created_by": "mkimage"}},
	})
	descriptor := func(mediaType string, data []byte) object {
		return object{"mediaType": mediaType, "digest": "sha256:" + hash(data), "size": len(data)}
	}
	manifest := encode(object{
		"schemaVersion": 2,
		"mediaType":     "application/vnd.oci.image.manifest.v1+json",
		"config":        descriptor("application/vnd.oci.image.config.v1+json", config),
		"layers":        []object{descriptor("application/vnd.oci.image.layer.v1.tar", layer)},
	})
	named := descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
	named["platform"] = platform
	// containerd takes the whole name from its own annotation; others know the tag alone.
	named["annotations"] = object{
		"io.containerd.image.name":          s.Ref,
		"org.opencontainers.image.ref.name": s.Ref[strings.LastIndexByte(s.Ref, ':')+1:],
	}
	index := encode(object{
		"schemaVersion": 2,
		"mediaType":     "application/vnd.oci.image.index.v1+json",
		"manifests":     []object{named},
	})
	docker := encode([]object{{"Config": blob(config), "RepoTags": []string{s.Ref}, "Layers": []string{blob(layer)}}})

	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range []struct {
		name string
		data []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", index},
		{"manifest.json", docker},
		{blob(manifest), manifest},
		{blob(config), config},
		{blob(layer), layer},
	} {
		h := tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data)), ModTime: s.Created, Typeflag: tar.TypeReg}
		must(add(w, h, f.data))
	}
	must(w.Close())
	return buf.Bytes()
}

// environment puts a PATH before the given variables, unless one of them is a PATH.
func environment(given []string) []string {
	if slices.ContainsFunc(given, func(s string) bool { return strings.HasPrefix(s, "PATH=") }) {
		return given
	}
	return append([]string{"PATH=/usr/local/bin:/usr/bin:/bin"}, given...)
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// encode writes JSON with sorted keys, which makes equal images equal bytes.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	must(err)
	return data
}

// must is for what cannot fail: strings and numbers to JSON, short names to a tar in memory.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
