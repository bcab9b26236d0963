module poolkeeper.dev/hack/images

go 1.23
