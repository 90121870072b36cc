//! Expands a marker to an `impl Marked` or `impl MarkedHub`.

use lockgate_webhook_markers::attribute::{Header, HubHeader, Problem, read, read_conversion};
use lockgate_webhook_markers::{Alias, ConversionMarker, Marker, Role, Selector, Service};
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};

/// Returns the unchanged item, with its registration or compile errors.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = item.clone().into_iter().collect();
    let header = match Header::read(&tokens) {
        Ok((header, _)) => header,
        Err(problem) => {
            let error = complain(&problem);
            return quote! { #error #item };
        }
    };
    let marker = read(arguments, &header, Span::call_site());
    let marker = marker.and_then(|marker| check_kind(&marker).map(|()| marker));
    let (errors, body) = match marker {
        Ok(marker) => (TokenStream::new(), registration(&marker, &header)),
        // The trait is implemented nevertheless, so that its absence is not a second error.
        Err(problems) => {
            let errors = problems.iter().map(complain).collect();
            (errors, quote! { ::core::unimplemented!() })
        }
    };
    let mark = match header.role {
        Role::Mutating => quote! { Mutates },
        Role::Validating => quote! { Validates },
    };
    let stream = |tokens: &[TokenTree]| tokens.iter().cloned().collect::<TokenStream>();
    let (generics, kind) = (stream(&header.generics), stream(&header.kind));
    let (target, where_clause) = (stream(&header.target), stream(&header.where_clause));
    quote! {
        #item

        #errors

        #[automatically_derived]
        impl #generics ::lockgate_webhook::Marked<::lockgate_webhook::#mark<#kind>> for #target
        #where_clause
        {
            fn registration() -> ::lockgate_webhook::Registration {
                #body
            }
        }
    }
}

/// Returns the unchanged hub, with the registration of its conversion or compile errors.
pub(crate) fn conversion(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = item.clone().into_iter().collect();
    let header = match HubHeader::read(&tokens) {
        Ok(header) => header,
        Err(problem) => {
            let error = complain(&problem);
            return quote! { #error #item };
        }
    };
    let target: TokenStream = header.target.iter().cloned().collect();
    let (errors, body) = match read_conversion(arguments, &header, Span::call_site()) {
        Ok(marker) => (TokenStream::new(), conversion_registration(&marker)),
        Err(problems) => {
            let errors = problems.iter().map(complain).collect();
            (errors, quote! { ::core::unimplemented!() })
        }
    };
    quote! {
        #item

        #errors

        #[automatically_derived]
        impl ::lockgate_webhook::MarkedHub for #target {
            fn registration() -> ::lockgate_webhook::ConversionRegistration {
                #body
            }
        }
    }
}

fn conversion_registration(marker: &ConversionMarker) -> TokenStream {
    let resource = &marker.resource;
    let path = marker.path.iter().map(|path| quote! { .at_path(#path) });
    let url = marker.url.iter().map(|url| quote! { .at_url(#url) });
    let versions = marker.review_versions.iter();
    let versions = versions.map(|all| quote! { .with_review_versions(&[#(#all),*]) });
    let service = service(&marker.service);
    quote! {
        ::lockgate_webhook::ConversionRegistration::new(
            ::lockgate_webhook::__private::group_of(<Self as ::lockgate_webhook::Hub>::API_VERSION),
            #resource,
        )
        #(#path)*
        #(#url)*
        #(#versions)*
        #service
    }
}

/// The settings of the webhook's Service.
fn service(service: &Service) -> TokenStream {
    let name = service
        .name
        .iter()
        .map(|name| quote! { .service_name(#name) });
    let namespace = service.namespace.iter();
    let namespace = namespace.map(|namespace| quote! { .service_namespace(#namespace) });
    let port = service
        .port
        .iter()
        .map(|port| quote! { .service_port(#port) });
    quote! { #(#name)* #(#namespace)* #(#port)* }
}

fn complain(problem: &Problem) -> TokenStream {
    let message = match &problem.help {
        Some(help) => format!("{}\nhelp: {help}", problem.message),
        None => problem.message.clone(),
    };
    quote_spanned! { problem.span => ::core::compile_error!(#message); }
}

/// The arguments that default to those of the object's type.
fn needs(marker: &Marker) -> Vec<&'static str> {
    let is_placed = marker.path.is_some() || marker.url.is_some();
    let wants_kind = marker.aliases.contains(&Alias::Logical);
    let all = [
        ("groups", marker.groups.is_none()),
        ("versions", marker.versions.is_none()),
        ("resources", marker.resources.is_none()),
        ("path", !is_placed),
        ("alias", wants_kind),
    ];
    let needed = all.into_iter().filter(|(_, is_needed)| *is_needed);
    needed.map(|(name, _)| name).collect()
}

/// Types implement `kube::Resource` only with the feature `kube`.
fn check_kind(marker: &Marker) -> Result<(), Vec<Problem>> {
    let needed = needs(marker);
    if cfg!(feature = "kube") || needed.is_empty() {
        return Ok(());
    }
    let needed: Vec<String> = needed.iter().map(|name| format!("`{name}`")).collect();
    Err(vec![Problem {
        span: Span::call_site(),
        message: format!("the type of the object does not say {}", needed.join(", ")),
        help: Some(String::from(
            "give them here, or enable the feature `kube` of `lockgate-webhook`",
        )),
    }])
}

fn registration(marker: &Marker, header: &Header) -> TokenStream {
    let name = &marker.name;
    let (new, role) = match marker.role {
        Role::Mutating => (quote! { mutating }, quote! { Mutating }),
        Role::Validating => (quote! { validating }, quote! { Validating }),
    };
    let kind: TokenStream = header.kind.iter().cloned().collect();
    let facts = (!needs(marker).is_empty()).then(|| {
        quote! { let kind = ::lockgate_webhook::__private::kind_of::<#kind>(); }
    });
    let place = match (&marker.url, &marker.path) {
        (Some(url), _) => quote! { .url(#url) },
        (None, Some(path)) => quote! { .path(#path) },
        (None, None) => quote! { .path(kind.path(::lockgate_webhook::Role::#role)) },
    };
    let aliases = marker.aliases.iter().map(|alias| match alias {
        Alias::Path(path) => quote! { .alias(#path) },
        Alias::Logical => {
            quote! { .alias(kind.logical_path(::lockgate_webhook::Role::#role)) }
        }
    });
    let rule = rule(marker);
    let settings = settings(marker);
    quote! {
        #facts
        ::lockgate_webhook::Registration::#new(#name)
            #place
            #(#aliases)*
            #rule
            #settings
    }
}

fn rule(marker: &Marker) -> TokenStream {
    let verbs = marker.verbs.iter().map(|verb| match verb.as_str() {
        "CREATE" => quote! { ::lockgate_webhook::Operation::Create },
        "UPDATE" => quote! { ::lockgate_webhook::Operation::Update },
        "DELETE" => quote! { ::lockgate_webhook::Operation::Delete },
        "CONNECT" => quote! { ::lockgate_webhook::Operation::Connect },
        other => quote! { ::lockgate_webhook::Operation::Other(#other.into()) },
    });
    let operations = if marker.verbs.iter().any(|verb| verb == "*") {
        quote! { .all_operations() }
    } else {
        quote! { .operations([#(#verbs),*]) }
    };
    let or_kind = |given: &Option<Vec<String>>, of_kind: TokenStream| match given {
        Some(given) => quote! { [#(#given),*] },
        None => quote! { [#of_kind] },
    };
    let groups = or_kind(&marker.groups, quote! { kind.group.as_str() });
    let versions = or_kind(&marker.versions, quote! { kind.version.as_str() });
    let resources = or_kind(&marker.resources, quote! { kind.plural.as_str() });
    let scope = match (marker.scope.as_deref(), &marker.resources) {
        (Some("Cluster"), _) => quote! { .scope(::lockgate_webhook::Scope::Cluster) },
        (Some("Namespaced"), _) => quote! { .scope(::lockgate_webhook::Scope::Namespaced) },
        (Some(_), _) => quote! { .scope(::lockgate_webhook::Scope::All) },
        // An explicit resource may have any scope.
        (None, Some(_)) => TokenStream::new(),
        (None, None) => quote! { .scope(kind.scope) },
    };
    quote! {
        .rule(
            ::lockgate_webhook::Rule::resources(#resources)
                .groups(#groups)
                .versions(#versions)
                #operations
                #scope
        )
    }
}

fn settings(marker: &Marker) -> TokenStream {
    // The values were validated when the marker was parsed, and are the names of the variants.
    let words = [
        ("failure_policy", "FailurePolicy", &marker.failure_policy),
        ("match_policy", "MatchPolicy", &marker.match_policy),
        ("side_effects", "SideEffects", &marker.side_effects),
        (
            "reinvocation_policy",
            "ReinvocationPolicy",
            &marker.reinvocation_policy,
        ),
    ];
    let words = words.into_iter().filter_map(|(setter, set, word)| {
        let [setter, set, word] = [setter, set, word.as_deref()?].map(ident);
        Some(quote! { .#setter(::lockgate_webhook::#set::#word) })
    });
    let service = service(&marker.service);
    let timeout = marker.timeout_seconds;
    let timeout = timeout.map(|seconds| quote! { .timeout_seconds(#seconds) });
    let versions = marker.admission_review_versions.as_ref();
    let versions = versions.map(|all| quote! { .admission_review_versions(&[#(#all),*]) });
    let namespaces = marker.namespace_selector.as_ref().map(selector);
    let namespaces = namespaces.map(|selector| quote! { .namespace_selector(#selector) });
    let objects = marker.object_selector.as_ref().map(selector);
    let objects = objects.map(|selector| quote! { .object_selector(#selector) });
    let conditions = marker.match_conditions.iter();
    let conditions = conditions.map(|(name, text)| quote! { .match_condition(#name, #text) });
    quote! {
        #(#words)*
        #service
        #timeout
        #versions
        #namespaces
        #objects
        #(#conditions)*
    }
}

fn ident(text: &str) -> Ident {
    Ident::new(text, Span::call_site())
}

fn selector(selector: &Selector) -> TokenStream {
    let labels = selector.labels.iter();
    let labels = labels.map(|(key, value)| quote! { (#key, #value) });
    let expressions = selector.expressions.iter().map(|expression| {
        let (key, operator, values) = (&expression.key, expression.operator, &expression.values);
        quote! { (#key, #operator, &[#(#values),*]) }
    });
    quote! {
        ::lockgate_webhook::__private::selector(&[#(#labels),*], &[#(#expressions),*])
    }
}
