package envoy

import (
	"bytes"
	"encoding/json"
	"fmt"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/structpb" // which the description below imports

	"github.com/stintdev/stint/server/rules"
)

// configName is the message that a management server sends for each domain, and configType the type
// that a client asks for.
const (
	configName = "ratelimit.config.ratelimit.v3.RateLimitConfig"
	configType = "type.googleapis.com/" + configName
)

// filesOf returns the configurations in r as files of Envoy's form: they have the same names in JSON, and
// JSON is YAML.
func filesOf(r *discovery.DiscoveryResponse) ([]rules.File, error) {
	if r.TypeUrl != configType {
		return nil, fmt.Errorf("type %.100q: want %s", r.TypeUrl, configType)
	}
	files := make([]rules.File, len(r.Resources))
	for i, resource := range r.Resources {
		if resource.TypeUrl != configType {
			return nil, fmt.Errorf("resource %d: type %.100q: want %s", i, resource.TypeUrl, configType)
		}
		m := dynamicpb.NewMessage(configDescription)
		if err := proto.Unmarshal(resource.Value, m); err != nil {
			return nil, fmt.Errorf("resource %d: %w", i, err)
		}
		nameField := configDescription.Fields().ByName("name")
		name := m.Get(nameField).String()
		m.Clear(nameField)
		text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
		var indented bytes.Buffer
		if err == nil { // protojson changes its spaces from build to build
			err = json.Indent(&indented, text, "", " ")
		}
		if err != nil {
			return nil, fmt.Errorf("resource %d, %.100q: %w", i, name, err)
		}
		files[i] = rules.File{Name: fmt.Sprintf("resource %.100q", name), Data: indented.Bytes(), Envoy: true}
	}
	return files, nil
}

// configDescription describes RateLimitConfig. The module with the generated code is older: it lacks
// quota_mode and metadata.
var configDescription = describeConfig()

func describeConfig() protoreflect.MessageDescriptor {
	const (
		text    = descriptorpb.FieldDescriptorProto_TYPE_STRING
		boolean = descriptorpb.FieldDescriptorProto_TYPE_BOOL
		number  = descriptorpb.FieldDescriptorProto_TYPE_UINT32
		enum    = descriptorpb.FieldDescriptorProto_TYPE_ENUM
		message = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
		own     = ".ratelimit.config.ratelimit.v3."
	)
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, of string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{
			Name: &name, Number: &number, Type: &kind, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		}
		if of != "" {
			f.TypeName = &of
		}
		return f
	}
	list := func(f *descriptorpb.FieldDescriptorProto) *descriptorpb.FieldDescriptorProto {
		f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		return f
	}
	describe := func(name string, fields ...*descriptorpb.FieldDescriptorProto) *descriptorpb.DescriptorProto {
		return &descriptorpb.DescriptorProto{Name: &name, Field: fields}
	}
	units := &descriptorpb.EnumDescriptorProto{Name: proto.String("RateLimitUnit")}
	for i, name := range []string{"UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"} {
		units.Value = append(units.Value, &descriptorpb.EnumValueDescriptorProto{Name: &name, Number: proto.Int32(int32(i))})
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("stint/rls_conf.proto"), Package: proto.String("ratelimit.config.ratelimit.v3"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/struct.proto"}, EnumType: []*descriptorpb.EnumDescriptorProto{units},
		MessageType: []*descriptorpb.DescriptorProto{
			describe("RateLimitConfig", field("name", 1, text, ""), field("domain", 2, text, ""),
				list(field("descriptors", 3, message, own+"RateLimitDescriptor"))),
			describe("RateLimitDescriptor", field("key", 1, text, ""), field("value", 2, text, ""),
				field("rate_limit", 3, message, own+"RateLimitPolicy"), list(field("descriptors", 4, message, own+"RateLimitDescriptor")),
				field("shadow_mode", 5, boolean, ""), field("detailed_metric", 6, boolean, ""), field("quota_mode", 7, boolean, ""),
				field("metadata", 8, message, ".google.protobuf.Struct")),
			describe("RateLimitPolicy", field("unit", 1, enum, own+"RateLimitUnit"), field("requests_per_unit", 2, number, ""),
				field("unlimited", 3, boolean, ""), field("name", 4, text, ""), list(field("replaces", 5, message, own+"RateLimitReplace"))),
			describe("RateLimitReplace", field("name", 1, text, "")),
		},
	}, protoregistry.GlobalFiles)
	if err != nil {
		panic(err) // the description above is wrong
	}
	return file.Messages().ByName("RateLimitConfig")
}
