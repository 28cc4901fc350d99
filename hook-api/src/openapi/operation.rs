//! What is said about one method of one route.

use axum::routing::MethodFilter;
use hook_common::problem::Code;
use serde_json::{Map, Value, json};

/// One method of one route, as clients see it.
pub(crate) struct Operation {
    /// The method.
    pub(crate) verb: Verb,
    /// The pattern, as the router takes it.
    pub(crate) path: &'static str,
    id: &'static str,
    summary: &'static str,
    parameters: Vec<Value>,
    body: Body,
    answers: Vec<(u16, Content)>,
    problems: Vec<u16>,
}

/// The methods that routes have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verb {
    Delete,
    Get,
    Patch,
    Post,
    Put,
}

impl Verb {
    /// How the router knows it.
    pub(crate) fn filter(self) -> MethodFilter {
        match self {
            Self::Delete => MethodFilter::DELETE,
            Self::Get => MethodFilter::GET,
            Self::Patch => MethodFilter::PATCH,
            Self::Post => MethodFilter::POST,
            Self::Put => MethodFilter::PUT,
        }
    }

    /// How the document spells it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Get => "get",
            Self::Patch => "patch",
            Self::Post => "post",
            Self::Put => "put",
        }
    }
}

/// What a request carries.
enum Body {
    /// Nothing.
    None,
    /// Nothing, or an empty object.
    Action,
    /// JSON of this schema.
    Json(&'static str),
    /// JSON of this schema, or a line of the second one each.
    JsonOrLines(&'static str, &'static str),
}

/// What a successful answer carries.
enum Content {
    /// Nothing.
    Empty,
    /// JSON of this schema.
    Json(&'static str),
    /// Something else.
    Other(&'static str),
}

impl Operation {
    /// Describes a method of a route, with the refusals that every one of them knows.
    pub(crate) fn new(verb: Verb, path: &'static str, id: &'static str) -> Self {
        let mut operation = Self {
            verb,
            path,
            id,
            summary: "",
            parameters: Vec::new(),
            body: Body::None,
            answers: Vec::new(),
            problems: vec![400, 401, 403, 408, 413, 431, 500, 503],
        };
        let segments = path.split('/').filter_map(|part| part.strip_prefix('{'));
        for segment in segments {
            let name = segment.trim_end_matches('}');
            operation = operation.at_path(name).refuses(404);
        }
        operation
    }

    pub(crate) fn says(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Adds an optional parameter of the query.
    pub(crate) fn query(mut self, name: &str, schema: Value) -> Self {
        self.parameters
            // An empty value counts as not given.
            .push(json!({"name": name, "in": "query", "allowEmptyValue": true, "schema": schema}));
        self.refuses(422)
    }

    /// Adds an optional header of the request.
    pub(crate) fn header(mut self, name: &str, schema: Value) -> Self {
        self.parameters
            .push(json!({"name": name, "in": "header", "schema": schema}));
        self
    }

    /// Says that the request may carry an empty object.
    pub(crate) fn action(mut self) -> Self {
        self.body = Body::Action;
        self.refuses(415)
    }

    /// Says that the request carries JSON of this schema.
    pub(crate) fn takes(mut self, schema: &'static str) -> Self {
        self.body = Body::Json(schema);
        self.refuses(415).refuses(422)
    }

    /// Says that the request carries JSON, or a line of another schema each.
    pub(crate) fn takes_lines(mut self, schema: &'static str, line: &'static str) -> Self {
        self = self.takes(schema);
        self.body = Body::JsonOrLines(schema, line);
        self
    }

    /// Adds an answer with JSON of this schema.
    pub(crate) fn answers(mut self, status: u16, schema: &'static str) -> Self {
        self.answers.push((status, Content::Json(schema)));
        self
    }

    /// Adds an answer without a body.
    pub(crate) fn answers_nothing(mut self, status: u16) -> Self {
        self.answers.push((status, Content::Empty));
        self
    }

    /// Adds an answer of another content type.
    pub(crate) fn answers_with(mut self, status: u16, content_type: &'static str) -> Self {
        self.answers.push((status, Content::Other(content_type)));
        self
    }

    /// Adds a status with which the request may be refused.
    pub(crate) fn refuses(mut self, status: u16) -> Self {
        if !self.problems.contains(&status) {
            self.problems.push(status);
        }
        self
    }

    fn at_path(mut self, name: &str) -> Self {
        let schema = json!({"type": "string", "minLength": 1, "maxLength": 255});
        self.parameters
            .push(json!({"name": name, "in": "path", "required": true, "schema": schema}));
        self
    }

    /// Adds this to the object of all paths.
    pub(super) fn add_to(&self, paths: &mut Map<String, Value>) {
        let mut said = json!({
            "operationId": self.id,
            "summary": self.summary,
            "responses": self.responses(),
        });
        if !self.parameters.is_empty() {
            said["parameters"] = self.parameters.clone().into();
        }
        if let Some(body) = self.body.described() {
            said["requestBody"] = body;
        }
        let path = paths.entry(self.path).or_insert_with(|| json!({}));
        path[self.verb.as_str()] = said;
    }

    fn responses(&self) -> Value {
        let mut responses = Map::new();
        for (status, content) in &self.answers {
            responses.insert(status.to_string(), content.described());
        }
        let mut problems = self.problems.clone();
        problems.sort_unstable();
        for status in problems {
            let reference = format!("#/components/responses/{status}");
            responses.insert(status.to_string(), json!({"$ref": reference}));
        }
        responses.into()
    }
}

impl Body {
    fn described(&self) -> Option<Value> {
        match self {
            Self::None => None,
            Self::Action => {
                let empty = json!({"type": "object", "maxProperties": 0});
                let content = json!({"application/json": {"schema": empty}});
                Some(json!({"required": false, "content": content}))
            }
            Self::Json(schema) => {
                let content = json!({"application/json": {"schema": reference(schema)}});
                Some(json!({"required": true, "content": content}))
            }
            Self::JsonOrLines(schema, line) => {
                let description = format!("One {line} a line.");
                let content = json!({
                    "application/json": {"schema": reference(schema)},
                    "application/x-ndjson": {
                        "schema": {"type": "string", "description": description},
                    },
                });
                Some(json!({"required": true, "content": content}))
            }
        }
    }
}

impl Content {
    fn described(&self) -> Value {
        match self {
            Self::Empty => json!({"description": "Done."}),
            Self::Json(schema) => json!({
                "description": schema,
                "content": {"application/json": {"schema": reference(schema)}},
            }),
            Self::Other(kind) => {
                let content_type = (*kind).to_owned();
                let content = Map::from_iter([(content_type, json!({}))]);
                json!({"description": "The document.", "content": content})
            }
        }
    }
}

/// The refusals, one for each status that a code has.
pub(super) fn refusals() -> Value {
    let mut responses = Map::new();
    for code in Code::ALL {
        let status = code.status();
        let said = responses.entry(status.to_string()).or_insert_with(|| {
            let schema = reference("Problem");
            let mut said = json!({
                "description": "",
                "content": {"application/problem+json": {"schema": schema}},
            });
            let header = match status {
                401 => Some(("WWW-Authenticate", json!({"type": "string"}))),
                429 | 503 => Some(("Retry-After", json!({"type": "integer", "minimum": 1}))),
                _ => None,
            };
            if let Some((name, schema)) = header {
                said["headers"][name] = json!({"schema": schema});
            }
            said
        });
        let text = said["description"].as_str().unwrap_or_default();
        let line = format!("{text}`{code}`: {}. ", code.title());
        said["description"] = line.into();
    }
    responses.into()
}

/// A pointer to one of the schemas.
pub(super) fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}
