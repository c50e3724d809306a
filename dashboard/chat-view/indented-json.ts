const INDENT = '  ';

/** JSON with one member a line; null: the text is no JSON. Numbers keep all their digits, which a parsed number would lose. */
export function indentedJson(text: string): string | null {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let shown = '';
  let depth = 0;
  const line = (): string => `\n${INDENT.repeat(depth)}`;
  for (const [part] of text.matchAll(/"(?:[^"\\]|\\.)*"|\[\s*\]|\{\s*\}|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    if (part === '{' || part === '[') {
      depth += 1;
      shown += part + line();
    } else if (part === '}' || part === ']') {
      depth -= 1;
      shown += line() + part;
    } else if (part === ',') shown += part + line();
    else if (part === ':') shown += ': ';
    else shown += part;
  }
  return shown;
}
