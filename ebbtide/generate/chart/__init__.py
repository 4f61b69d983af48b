"""What is generated in helm/ebbtide: values, their schema, definitions, rights, rules, dashboards."""
