// Command dockerfile-lint runs BuildKit's checks (those of `docker build --check`) over a Dockerfile, without an engine
// and without a registry, and prints what they find. With --platform for each of the platforms that the image is made for.
//
//	dockerfile-lint FILE PLATFORM...
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/containerd/platforms"
	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerui"
	"github.com/opencontainers/go-digest"
	ocispecs "github.com/opencontainers/image-spec/specs-go/v1"
)

// offline knows every base image, as one of which nothing is known.
type offline struct{}

func (offline) ResolveImageConfig(_ context.Context, ref string, opt sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	platform := platforms.DefaultSpec()
	if opt.ImageOpt != nil && opt.ImageOpt.Platform != nil {
		platform = *opt.ImageOpt.Platform
	}
	config, err := json.Marshal(ocispecs.Image{Platform: platform})
	return ref, digest.FromBytes(config), config, err
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: dockerfile-lint FILE PLATFORM...")
		os.Exit(64)
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(66)
	}
	source := llb.NewSourceMap(nil, os.Args[1], "Dockerfile", text)
	source.Definition = &llb.Definition{}
	found := false
	for _, name := range os.Args[2:] {
		platform, err := platforms.Parse(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(64)
		}
		results, err := dockerfile2llb.DockerfileLint(context.Background(), text, dockerfile2llb.ConvertOpt{
			Config:         dockerui.Config{BuildPlatforms: []ocispecs.Platform{platforms.DefaultSpec()}},
			SourceMap:      source,
			TargetPlatform: &platform,
			MetaResolver:   offline{},
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for _, warning := range results.Warnings {
			found = true
			fmt.Printf("%s: %s: %s\n", name, warning.RuleName, warning.Detail)
		}
		if results.Error != nil {
			found = true
			fmt.Printf("%s: %s\n", name, results.Error.Message)
		}
	}
	if found {
		os.Exit(1)
	}
}
