/** Finds the fault in a text that JSON.parse has refused, for a message to people. It does not recurse, so that any depth works. */

/** Literals that may begin a value, or the rest of a list or object. */
const LITERAL = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.+-])/y;
const ESCAPE = /\\u[0-9a-fA-F]{4}/y;
const SHORT_ESCAPES: ReadonlySet<number> = new Set([...'"\\/bfnrt'].map((letter) => letter.charCodeAt(0)));
const QUOTE_CODE = 0x22;
const BACKSLASH_CODE = 0x5c;
const FIRST_PLAIN_CODE = 0x20;
const SPACE = /[ \t\n\r]*/y;

/** The index (from 0) at which the text stops being JSON; its length if it ends too early; null: it is JSON. */
export function findJsonFault(text: string): number | null {
  const open: string[] = [];
  let expected: 'value' | 'first' | 'key' | 'rest' = 'value';
  let at = 0;
  const take = (pattern: RegExp): boolean => {
    pattern.lastIndex = at;
    const found = pattern.test(text);
    if (found) at = pattern.lastIndex;
    return found;
  };
  const takeString = (): boolean => {
    if (text[at] !== '"') return false;
    const end = endOfString(text, at + 1);
    at = end;
    if (text[at] !== '"') return false;
    at += 1;
    return true;
  };
  for (;;) {
    take(SPACE);
    const character = text[at];
    const opened = open.at(-1);
    if (expected === 'rest' && opened === undefined) return at === text.length ? null : at;
    if (expected !== 'value' && expected !== 'key' && character === (opened === '{' ? '}' : ']')) {
      open.pop();
      at += 1;
      expected = 'rest';
    } else if (expected === 'rest') {
      if (character !== ',') return at;
      at += 1;
      expected = opened === '{' ? 'key' : 'value';
    } else if (expected === 'key' || (expected === 'first' && opened === '{')) {
      if (!takeString()) return at;
      take(SPACE);
      if (text[at] !== ':') return at;
      at += 1;
      expected = 'value';
    } else if (character === '{' || character === '[') {
      open.push(character);
      at += 1;
      expected = 'first';
    } else if (character === '"' ? takeString() : take(LITERAL)) expected = 'rest';
    else return at;
  }
}

/** The index at which the open string ends: its quote, or a character that a string must not contain; else the text's end. */
function endOfString(text: string, start: number): number {
  let at = start;
  for (; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE_CODE || code < FIRST_PLAIN_CODE) return at;
    if (code !== BACKSLASH_CODE) continue;
    if (SHORT_ESCAPES.has(text.charCodeAt(at + 1))) {
      at += 1;
      continue;
    }
    ESCAPE.lastIndex = at;
    if (!ESCAPE.test(text)) return at;
    at = ESCAPE.lastIndex - 1;
  }
  return at;
}

/** For example "line 2, column 5"; both count from 1. */
export function describePlace(text: string, at: number): string {
  let line = 1;
  let lineBegins = 0;
  for (let end = text.indexOf('\n'); end >= 0 && end < at; end = text.indexOf('\n', lineBegins)) {
    line += 1;
    lineBegins = end + 1;
  }
  return `line ${line}, column ${at - lineBegins + 1}`;
}
