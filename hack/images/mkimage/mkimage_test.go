package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// unpack reads a tar into its headers and contents, in order.
func unpack(t *testing.T, data []byte) (headers []*tar.Header, contents map[string][]byte) {
	t.Helper()
	contents = map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return headers, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		if contents[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		headers = append(headers, h)
	}
}

func TestLayerIsSortedWithItsDirectoriesAndOneTime(t *testing.T) {
	mtime := time.Unix(1000, 0)
	layer, err := layerTar(append(baseEntries(), entry{Path: "/usr/local/bin/x", Mode: 0o755, Data: []byte("x")}), mtime)
	if err != nil {
		t.Fatal(err)
	}
	headers, _ := unpack(t, layer)
	var names []string
	for _, h := range headers {
		names = append(names, h.Name)
		if !h.ModTime.Equal(mtime) || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s: time %v, owner %d:%d", h.Name, h.ModTime, h.Uid, h.Gid)
		}
		if h.Name == "tmp/" && h.Mode != 0o1777 {
			t.Errorf("/tmp has mode %o", h.Mode)
		}
	}
	want := []string{"etc/", "etc/group", "etc/nsswitch.conf", "etc/passwd", "tmp/", "usr/", "usr/local/", "usr/local/bin/", "usr/local/bin/x"}
	if !slices.Equal(names, want) {
		t.Errorf("got %v\nwant %v", names, want)
	}
}

func TestLayerRefusesTwoFilesAtOnePath(t *testing.T) {
	same := []entry{{Path: "/a", Data: []byte("1")}, {Path: "/a", Data: []byte("1")}}
	if _, err := layerTar(same, time.Time{}); err != nil {
		t.Errorf("equal files: %v", err)
	}
	differ := []entry{{Path: "/a", Data: []byte("1")}, {Path: "/a", Data: []byte("2")}}
	if _, err := layerTar(differ, time.Time{}); err == nil {
		t.Error("different files were accepted")
	}
	nested := []entry{{Path: "/a", Data: []byte("1")}, {Path: "/a/b", Data: []byte("2")}}
	if _, err := layerTar(nested, time.Time{}); err == nil {
		t.Error("a file below a file was accepted")
	}
}

func TestImageNamesItsBlobsByDigestInBothFormats(t *testing.T) {
	s := spec{Ref: "localhost:5000/a/x:dev", User: "65532:65532", Arch: "arm64", Entrypoint: []string{"/x", "run"},
		Env: []string{"A=b"}, Created: time.Unix(0, 0).UTC()}
	image := imageTar(s, []byte("layer"))
	if !bytes.Equal(image, imageTar(s, []byte("layer"))) {
		t.Error("the same inputs gave different bytes")
	}
	_, files := unpack(t, image)
	for name, data := range files {
		if digest, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && digest != hash(data) {
			t.Errorf("%s holds %s", name, hash(data))
		}
	}
	type descriptor struct {
		Digest      string
		Size        int
		Annotations map[string]string
	}
	var index struct{ Manifests []descriptor }
	read(t, files, "index.json", &index)
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != s.Ref {
		t.Errorf("containerd's name is %q", got)
	}
	if got := index.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; got != "dev" {
		t.Errorf("the tag is %q", got)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	read(t, files, "blobs/sha256/"+index.Manifests[0].Digest[len("sha256:"):], &manifest)
	var config struct {
		Architecture, OS, Created string
		Config                    struct {
			Entrypoint, Env []string
			User            string
		}
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	read(t, files, "blobs/sha256/"+manifest.Config.Digest[len("sha256:"):], &config)
	if config.Architecture != "arm64" || config.OS != "linux" || config.Created != "1970-01-01T00:00:00Z" || config.Config.User != s.User {
		t.Errorf("config %+v", config)
	}
	if !slices.Equal(config.Config.Entrypoint, s.Entrypoint) || !slices.Contains(config.Config.Env, "A=b") {
		t.Errorf("config %+v", config.Config)
	}
	if config.Rootfs.DiffIDs[0] != manifest.Layers[0].Digest {
		t.Error("an uncompressed layer's diff id is its digest")
	}
	var docker []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	read(t, files, "manifest.json", &docker)
	if docker[0].RepoTags[0] != s.Ref || files[docker[0].Config] == nil || string(files[docker[0].Layers[0]]) != "layer" {
		t.Errorf("docker's table is %+v", docker)
	}
}

func read(t *testing.T, files map[string][]byte, name string, into any) {
	t.Helper()
	if err := json.Unmarshal(files[name], into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func TestLddGivesLibrariesAndLoaderWithoutTheKernels(t *testing.T) {
	libs, err := parseLdd("x", "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t/lib64/ld.so.2 (0x3)\n")
	if err != nil || !slices.Equal(libs, []string{"/lib/libc.so.6", "/lib64/ld.so.2"}) {
		t.Errorf("%v, %v", libs, err)
	}
	if _, err := parseLdd("x", "\tliba.so => not found\n"); err == nil || !strings.Contains(err.Error(), "liba.so") {
		t.Errorf("a missing library gave %v", err)
	}
}

func TestArguments(t *testing.T) {
	good := []string{"-out", "o.tar", "-ref", "localhost/x:dev", "-entrypoint", "/x,run", "-file", "x:/x:0750", "-file", "y:/y"}
	o, err := parse(good)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.entrypoint, []string{"/x", "run"}) || o.files[0].mode != 0o750 || o.files[1].mode != 0 || o.user != "65532:65532" {
		t.Errorf("%+v", o)
	}
	for _, bad := range [][]string{
		{"-ref", "localhost:5000/x"}, {"-entrypoint", "x"}, {"-file", "x"}, {"-file", "x:y"}, {"-file", "x:/y:9"}, {"-env", "K"}, {"-out", ""}, {"stray"},
	} {
		if _, err := parse(append(slices.Clone(good), bad...)); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}

func TestModeFollowsTheFileUnlessGiven(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"program": 0o700, "text": 0o600} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name       string
		mode, want int64
	}{{"program", 0, 0o755}, {"text", 0, 0o644}, {"text", 0o400, 0o400}} {
		e, err := readEntry(filepath.Join(dir, c.name), "/x", c.mode)
		if err != nil || e.Mode != c.want {
			t.Errorf("%+v: mode %o, %v", c, e.Mode, err)
		}
	}
	if _, err := readEntry(dir, "/x", 0); err == nil {
		t.Error("a directory was accepted")
	}
}

func TestAnUnchangedImageKeepsItsTime(t *testing.T) {
	out := filepath.Join(t.TempDir(), "dir", "x.tar")
	if err := writeFile(out, []byte("1")); err != nil {
		t.Fatal(err)
	}
	old := time.Unix(1000, 0)
	if err := os.Chtimes(out, old, old); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		data    string
		touched bool
	}{{"1", false}, {"2", true}} {
		if err := writeFile(out, []byte(c.data)); err != nil {
			t.Fatal(err)
		}
		data, _ := os.ReadFile(out)
		info, err := os.Stat(out)
		if err != nil || string(data) != c.data || info.ModTime().Equal(old) == c.touched {
			t.Errorf("after writing %q: %q, time %v, %v", c.data, data, info.ModTime(), err)
		}
	}
}
