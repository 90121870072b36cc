//! Pods and templates of pods.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::Value;

use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::names::{check_label_value, check_qualified_name, check_subdomain};
use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::meta::validation::validate_metadata;
use lockgate_go::quantity::Quantity;

use crate::equality::semantically_equal;
use crate::object::{Object, get, has, is_empty, list, number, text};
use crate::typed::type_of;

use crate::checks::{
    check_label, check_port_name, invalid_each, not_found, one_of, port_number, required,
    take_over, template_metadata,
};

pub(in crate::builtin) fn create(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    pod_spec(errors, spec, &path);
    only_in_pods(errors, spec, &path);
    if !is_empty(spec, "ephemeralContainers") {
        errors.push(FieldError::forbidden(
            &path.child("ephemeralContainers"),
            "cannot be set on create",
        ));
    }
    if !text(spec, "nodeName").is_empty() && !is_empty(spec, "schedulingGates") {
        errors.push(FieldError::forbidden(
            &path.child("nodeName"),
            "cannot be set until all schedulingGates have been cleared",
        ));
    }
}

/// Stricter in pods than in templates, which were let in before.
fn only_in_pods(errors: &mut FieldErrors, spec: &Object, path: &Path<'_>) {
    for key in ["containers", "initContainers"] {
        let list_path = path.child(key);
        for (index, container) in list(spec, key)
            .iter()
            .filter_map(Value::as_object)
            .enumerate()
        {
            let image = text(container, "image");
            if image.trim().len() != image.len() {
                let path = list_path.index(index);
                errors.push(FieldError::invalid(
                    &path.child("image"),
                    Shown::Text(image),
                    "must not have leading or trailing whitespace",
                ));
            }
        }
    }
}

/// The kind `PodTemplate`.
pub(in crate::builtin) fn pod_template(errors: &mut FieldErrors, object: &Object) {
    template(errors, object, &Path::root("template"));
}

/// A template at `template` of a spec.
pub(in crate::builtin) fn template(errors: &mut FieldErrors, spec: &Object, path: &Path<'_>) {
    let empty = Object::new();
    let template = get(spec, "template").unwrap_or(&empty);
    template_metadata(errors, template, path);
    let pod = get(template, "spec").unwrap_or(&empty);
    let path = path.child("spec");
    pod_spec(errors, pod, &path);
    if !is_empty(pod, "ephemeralContainers") {
        errors.push(FieldError::forbidden(
            &path.child("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        ));
    }
}

fn pod_spec(errors: &mut FieldErrors, spec: &Object, path: &Path<'_>) {
    if !has(spec, "terminationGracePeriodSeconds") {
        required(errors, &path.child("terminationGracePeriodSeconds"));
    }
    let volumes = volumes(errors, spec, &path.child("volumes"));
    let containers = list(spec, "containers");
    let containers_path = path.child("containers");
    let mut names = BTreeSet::new();
    if containers.is_empty() {
        required(errors, &containers_path);
    }
    for (index, value) in containers.iter().filter_map(Value::as_object).enumerate() {
        let path = containers_path.index(index);
        container(errors, value, &volumes, &path);
        unique_name(errors, value, &mut names, &path);
    }
    let init_path = path.child("initContainers");
    for (index, value) in list(spec, "initContainers")
        .iter()
        .filter_map(Value::as_object)
        .enumerate()
    {
        let path = init_path.index(index);
        container(errors, value, &volumes, &path);
        unique_name(errors, value, &mut names, &path);
        if text(value, "restartPolicy") != "Always" {
            for key in [
                "lifecycle",
                "livenessProbe",
                "readinessProbe",
                "startupProbe",
            ] {
                if has(value, key) {
                    errors.push(FieldError::forbidden(
                        &path.child(key),
                        "may not be set for init containers without restartPolicy=Always",
                    ));
                }
            }
        }
    }
    one_of(
        errors,
        spec,
        "restartPolicy",
        path,
        &["Always", "OnFailure", "Never"],
    );
    one_of(
        errors,
        spec,
        "dnsPolicy",
        path,
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    let names = ["serviceAccountName", "nodeName"];
    named(errors, spec, path, &names, check_subdomain);
    let deadline = number(spec, "activeDeadlineSeconds");
    if has(spec, "activeDeadlineSeconds") && !(1..=i64::from(i32::MAX)).contains(&deadline) {
        errors.push(FieldError::invalid(
            &path.child("activeDeadlineSeconds"),
            Shown::Integer(deadline),
            "must be between 1 and 2147483647, inclusive",
        ));
    }
    named(errors, spec, path, &["hostname", "subdomain"], check_label);
    tolerations(errors, spec, &path.child("tolerations"));
    let classes = ["priorityClassName", "runtimeClassName"];
    named(errors, spec, path, &classes, check_subdomain);
}

/// Members that are names, where they are set.
fn named(
    errors: &mut FieldErrors,
    object: &Object,
    path: &Path<'_>,
    keys: &[&str],
    check: fn(&str) -> Vec<String>,
) {
    for key in keys {
        let value = text(object, key);
        if !value.is_empty() {
            invalid_each(errors, &path.child(key), value, check(value));
        }
    }
}

fn tolerations(errors: &mut FieldErrors, spec: &Object, path: &Path<'_>) {
    for (index, toleration) in list(spec, "tolerations")
        .iter()
        .filter_map(Value::as_object)
        .enumerate()
    {
        let path = path.index(index);
        let (key, value) = (text(toleration, "key"), text(toleration, "value"));
        let operator = text(toleration, "operator");
        let operator_path = path.child("operator");
        if !key.is_empty() {
            invalid_each(errors, &path.child("key"), key, check_qualified_name(key));
        } else if operator != "Exists" {
            errors.push(FieldError::invalid(
                &operator_path,
                Shown::Named(operator),
                "operator must be Exists when `key` is empty, which means \"match all values and all \
                 keys\"",
            ));
        }
        let effect = text(toleration, "effect");
        if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
            errors.push(FieldError::invalid(
                &path.child("effect"),
                Shown::Named(effect),
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            ));
        }
        match operator {
            "Equal" | "" => {
                let messages = check_label_value(value);
                if !messages.is_empty() {
                    let detail = messages.join(";");
                    errors.push(FieldError::invalid(
                        &operator_path,
                        Shown::Text(value),
                        detail,
                    ));
                }
            }
            "Exists" if !value.is_empty() => errors.push(FieldError::invalid(
                &operator_path,
                Shown::Text(value),
                "value must be empty when `operator` is 'Exists'",
            )),
            "Exists" | "Lt" | "Gt" => {}
            _ => errors.push(FieldError::not_supported(
                &operator_path,
                Shown::Named(operator),
                &["Equal", "Exists"],
            )),
        }
        if !matches!(effect, "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            errors.push(FieldError::not_supported(
                &path.child("effect"),
                Shown::Named(effect),
                &["NoSchedule", "PreferNoSchedule", "NoExecute"],
            ));
        }
    }
}

fn unique_name(
    errors: &mut FieldErrors,
    container: &Object,
    names: &mut BTreeSet<String>,
    path: &Path<'_>,
) {
    let name = text(container, "name");
    if !names.insert(name.to_owned()) {
        errors.push(FieldError::duplicate(
            &path.child("name"),
            Shown::Text(name),
        ));
    }
}

/// Checks volumes and gives the names of the good ones.
fn volumes(errors: &mut FieldErrors, spec: &Object, path: &Path<'_>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (index, volume) in list(spec, "volumes")
        .iter()
        .filter_map(Value::as_object)
        .enumerate()
    {
        let path = path.index(index);
        let name_path = path.child("name");
        let mut found = FieldErrors::new();
        let mut sources = volume.keys().filter(|key| *key != "name");
        match (sources.next(), sources.next()) {
            (None, _) => found.push(FieldError::required(&path, "must specify a volume type")),
            (Some(_), Some(second)) => found.push(FieldError::forbidden(
                &path.child(second),
                "may not specify more than 1 volume type",
            )),
            _ => {}
        }
        let name = text(volume, "name");
        if name.is_empty() {
            required(&mut found, &name_path);
        } else {
            invalid_each(&mut found, &name_path, name, check_label(name));
        }
        if names.contains(name) {
            found.push(FieldError::duplicate(&name_path, Shown::Text(name)));
        }
        if found.is_empty() {
            names.insert(name.to_owned());
        }
        errors.extend(found);
    }
    names
}

fn container(
    errors: &mut FieldErrors,
    container: &Object,
    volumes: &BTreeSet<String>,
    path: &Path<'_>,
) {
    let name = text(container, "name");
    let name_path = path.child("name");
    if name.is_empty() {
        required(errors, &name_path);
    } else {
        invalid_each(errors, &name_path, name, check_label(name));
    }
    if text(container, "image").is_empty() {
        required(errors, &path.child("image"));
    }
    one_of(
        errors,
        container,
        "terminationMessagePolicy",
        path,
        &["File", "FallbackToLogsOnError"],
    );
    ports(errors, container, &path.child("ports"));
    let env_path = path.child("env");
    for (index, variable) in list(container, "env")
        .iter()
        .filter_map(Value::as_object)
        .enumerate()
    {
        environment(errors, variable, &env_path.index(index));
    }
    mounts(errors, container, volumes, &path.child("volumeMounts"));
    one_of(
        errors,
        container,
        "imagePullPolicy",
        path,
        &["Always", "IfNotPresent", "Never"],
    );
    if let Some(resources) = get(container, "resources") {
        requirements(errors, resources, &path.child("resources"));
    }
}

fn ports(errors: &mut FieldErrors, container: &Object, path: &Path<'_>) {
    let mut names = BTreeSet::new();
    for (index, port) in list(container, "ports")
        .iter()
        .filter_map(Value::as_object)
        .enumerate()
    {
        let path = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            let messages = check_port_name(name);
            if !messages.is_empty() {
                invalid_each(errors, &path.child("name"), name, messages);
            } else if !names.insert(name) {
                errors.push(FieldError::duplicate(
                    &path.child("name"),
                    Shown::Text(name),
                ));
            }
        }
        match number(port, "containerPort") {
            0 => required(errors, &path.child("containerPort")),
            own => port_number(errors, own, &path.child("containerPort")),
        }
        match number(port, "hostPort") {
            0 => {}
            host => port_number(errors, host, &path.child("hostPort")),
        }
        one_of(errors, port, "protocol", &path, &["SCTP", "TCP", "UDP"]);
    }
}

fn environment(errors: &mut FieldErrors, variable: &Object, path: &Path<'_>) {
    let name = text(variable, "name");
    let name_path = path.child("name");
    if name.is_empty() {
        required(errors, &name_path);
    } else if !name
        .bytes()
        .all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
    {
        errors.push(FieldError::invalid(
            &name_path,
            Shown::Text(name),
            "a valid environment variable name must consist only of printable ASCII characters \
             other than '='",
        ));
    }
    let Some(source) = get(variable, "valueFrom") else {
        return;
    };
    let path = path.child("valueFrom");
    let shown = "\"\"";
    if source.is_empty() {
        errors.push(FieldError::invalid(
            &path,
            Shown::Rendered(shown),
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` \
             or `fileKeyRef`",
        ));
    } else if !text(variable, "value").is_empty() {
        errors.push(FieldError::invalid(
            &path,
            Shown::Rendered(shown),
            "may not be specified when `value` is not empty",
        ));
    } else if source.len() > 1 {
        errors.push(FieldError::invalid(
            &path,
            Shown::Rendered(shown),
            "may not have more than one field specified at a time",
        ));
    }
}

fn mounts(
    errors: &mut FieldErrors,
    container: &Object,
    volumes: &BTreeSet<String>,
    path: &Path<'_>,
) {
    let mut points = BTreeSet::new();
    for (index, mount) in list(container, "volumeMounts")
        .iter()
        .filter_map(Value::as_object)
        .enumerate()
    {
        let path = path.index(index);
        let (name, point) = (text(mount, "name"), text(mount, "mountPath"));
        let name_path = path.child("name");
        let point_path = path.child("mountPath");
        if name.is_empty() {
            required(errors, &name_path);
        }
        if !volumes.contains(name) {
            not_found(errors, &name_path, name);
        }
        if point.is_empty() {
            required(errors, &point_path);
        }
        if !points.insert(point) {
            errors.push(FieldError::invalid(
                &point_path,
                Shown::Text(point),
                "must be unique",
            ));
        }
    }
}

/// Requests within limits.
fn requirements(errors: &mut FieldErrors, resources: &Object, path: &Path<'_>) {
    let empty = Object::new();
    let limits = get(resources, "limits").unwrap_or(&empty);
    let requests = get(resources, "requests").unwrap_or(&empty);
    let read = |map: &Object, name: &str| Quantity::parse(text(map, name)).ok();
    for (key, map) in [("limits", limits), ("requests", requests)] {
        let list_path = path.child(key);
        for name in map.keys() {
            if read(map, name).is_some_and(|quantity| quantity.sign() < 0) {
                errors.push(FieldError::invalid(
                    &list_path.key(name),
                    Shown::Text(text(map, name)),
                    "must be greater than or equal to 0",
                ));
            }
            if key == "limits" {
                continue;
            }
            let overcommits = !name.contains('/') && !name.starts_with("hugepages-");
            let (Some(request), Some(limit)) = (read(requests, name), read(limits, name)) else {
                if !overcommits {
                    errors.push(FieldError::required(
                        &path.child("limits"),
                        "Limit must be set for non overcommitable resources",
                    ));
                }
                continue;
            };
            let order = request.compare(&limit);
            let rule = if order != Ordering::Equal && !overcommits {
                "equal to"
            } else if order == Ordering::Greater {
                "less than or equal to"
            } else {
                continue;
            };
            errors.push(FieldError::invalid(
                &list_path,
                Shown::Text(&request.to_string()),
                format!("must be {rule} {name} limit of {limit}"),
            ));
        }
    }
}

/// Of a pod only images, deadlines, tolerations and gates may change.
pub(in crate::builtin) fn update(
    errors: &mut FieldErrors,
    object: &Object,
    old: &Object,
    metadata: &ObjectMeta,
) {
    let empty = Object::new();
    let (spec, old_spec) = (
        get(object, "spec").unwrap_or(&empty),
        get(old, "spec").unwrap_or(&empty),
    );
    let rules = lockgate_api::meta::validation::SUBDOMAIN_NAMES;
    errors.extend(validate_metadata(metadata, rules, &Path::root("metadata")));
    let path = Path::root("spec");
    pod_spec(errors, spec, &path);
    only_in_pods(errors, spec, &path);
    for key in ["containers", "initContainers"] {
        if list(spec, key).len() != list(old_spec, key).len() {
            errors.push(FieldError::forbidden(
                &path.child(key),
                "pod updates may not add or remove containers",
            ));
            return;
        }
    }
    if deadline(errors, spec, old_spec, &path.child("activeDeadlineSeconds")) {
        return;
    }
    let kept = list(old_spec, "tolerations")
        .iter()
        .all(|toleration| list(spec, "tolerations").contains(toleration));
    if !kept {
        errors.push(FieldError::forbidden(
            &path.child("tolerations"),
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
    let gates = list(old_spec, "schedulingGates");
    let gates_path = path.child("schedulingGates");
    for (index, gate) in list(spec, "schedulingGates").iter().enumerate() {
        if !gates.contains(gate) {
            let name = gate.get("name").and_then(Value::as_str).unwrap_or_default();
            let gate_path = gates_path.index(index);
            errors.push(FieldError::forbidden(
                &gate_path.child("name"),
                format!("only deletion is allowed, but found new scheduling gate '{name}'"),
            ));
        }
    }
    let mut munged = spec.clone();
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        take_over(&mut munged, old_spec, key);
    }
    for key in ["containers", "initContainers"] {
        let images: Vec<Value> = list(old_spec, key)
            .iter()
            .map(|old| old["image"].clone())
            .collect();
        let containers = munged.get_mut(key).and_then(Value::as_array_mut);
        for (container, image) in containers.into_iter().flatten().zip(images) {
            if !image.is_null() {
                container["image"] = image;
            }
        }
    }
    if number(old_spec, "terminationGracePeriodSeconds") < 0
        && number(&munged, "terminationGracePeriodSeconds") == 1
    {
        take_over(&mut munged, old_spec, "terminationGracePeriodSeconds");
    }
    let same = type_of("", "v1", "Pod")
        .and_then(|ty| ty.field("spec"))
        .is_some_and(|field| {
            let (new, old) = (Value::Object(munged), Value::Object(old_spec.clone()));
            semantically_equal(field.ty(), &new, &old)
        });
    if !same {
        errors.push(FieldError::forbidden(
            &path,
            "pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
             additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to \
             be set to 1 if it was previously negative)\n",
        ));
    }
}

/// Checks a deadline, which may only get shorter; tells whether checking ends here.
fn deadline(errors: &mut FieldErrors, spec: &Object, old: &Object, path: &Path<'_>) -> bool {
    const KEY: &str = "activeDeadlineSeconds";
    let (new, former) = (number(spec, KEY), number(old, KEY));
    let mut invalid = |shown: Shown<'_>, detail: &str| {
        errors.push(FieldError::invalid(path, shown, detail));
    };
    match (has(spec, KEY), has(old, KEY)) {
        (true, _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            invalid(
                Shown::Integer(new),
                "must be between 0 and 2147483647, inclusive",
            );
            true
        }
        (true, true) if former < new => {
            invalid(
                Shown::Integer(new),
                "must be less than or equal to previous value",
            );
            true
        }
        (false, true) => {
            let detail = "must not update from a positive integer to nil value";
            invalid(Shown::Rendered("null"), detail);
            false
        }
        _ => false,
    }
}

/// Ephemeral containers may be added and never changed.
pub(in crate::builtin) fn ephemeral_containers(
    errors: &mut FieldErrors,
    object: &Object,
    old: &Object,
) {
    let empty = Object::new();
    let (spec, old_spec) = (
        get(object, "spec").unwrap_or(&empty),
        get(old, "spec").unwrap_or(&empty),
    );
    let root = Path::root("spec");
    let path = root.child("ephemeralContainers");
    let names: BTreeSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|key| list(spec, key))
        .filter_map(|container| container.get("name").and_then(Value::as_str))
        .collect();
    let mut seen = BTreeSet::new();
    let new = list(spec, "ephemeralContainers");
    for (index, container) in new.iter().filter_map(Value::as_object).enumerate() {
        let path = path.index(index);
        let name = text(container, "name");
        if name.is_empty() {
            required(errors, &path.child("name"));
        } else {
            invalid_each(errors, &path.child("name"), name, check_label(name));
        }
        if names.contains(name) || !seen.insert(name) {
            errors.push(FieldError::duplicate(
                &path.child("name"),
                Shown::Text(name),
            ));
        }
        if text(container, "image").is_empty() {
            required(errors, &path.child("image"));
        }
    }
    for former in list(old_spec, "ephemeralContainers") {
        let name = former
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        match new
            .iter()
            .position(|container| container.get("name") == former.get("name"))
        {
            None => errors.push(FieldError::forbidden(
                &path,
                format!(
                    "existing ephemeral containers {} may not be removed\n",
                    lockgate_go::quote::quote(name)
                ),
            )),
            Some(at) if new.get(at) != Some(former) => errors.push(FieldError::forbidden(
                &path,
                format!(
                    "existing ephemeral containers {} may not be changed\n",
                    lockgate_go::quote::quote(name)
                ),
            )),
            Some(_) => {}
        }
    }
}
