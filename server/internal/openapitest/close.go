package openapitest

// closeAnswers makes the schemas of answers allow only the members that they name. The document itself leaves
// them open, because a later version may add some. An object is closed where it is used, and not as a
// component or a part of allOf, to which others add members.
func closeAnswers(doc map[string]any) {
	for _, item := range object(doc["paths"]) {
		for _, op := range object(item) {
			for _, r := range object(object(op)["responses"]) {
				closeResponse(r)
			}
		}
	}
	components := object(doc["components"])
	for _, r := range object(components["responses"]) {
		closeResponse(r)
	}
	for _, s := range object(components["schemas"]) {
		closeInside(object(s))
	}
}

// object is v as an object; nil: it is not an object.
func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func closeResponse(r any) {
	for _, media := range object(object(r)["content"]) {
		closeSchema(object(object(media)["schema"]))
	}
}

// closeSchema closes a schema, and those in it.
func closeSchema(s map[string]any) {
	if s == nil {
		return
	}
	closeInside(s)
	_, open := s["additionalProperties"]
	for _, has := range []string{"properties", "allOf", "$ref"} {
		if s[has] != nil && !open {
			s["unevaluatedProperties"] = false
		}
	}
}

// closeInside closes the schemas in a schema.
func closeInside(s map[string]any) {
	for _, p := range object(s["properties"]) {
		closeSchema(object(p))
	}
	closeSchema(object(s["items"]))
	closeSchema(object(s["additionalProperties"]))
	for _, alternatives := range []string{"oneOf", "anyOf"} {
		list, _ := s[alternatives].([]any)
		for _, one := range list {
			closeSchema(object(one))
		}
	}
	list, _ := s["allOf"].([]any)
	for _, part := range list {
		closeInside(object(part))
	}
}
