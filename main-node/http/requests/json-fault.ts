/** What of a text is no JSON: for people, when JSON.parse has refused it. Iterative, so that no depth is too much. */

/** Most lists and objects within one another. */
export const JSON_DEPTH_LIMIT = 128;

/** What a value, or the rest of a list or object, may begin with. */
const LITERAL = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.+-])/y;
const QUOTE = /"/y;
const PLAIN_TEXT = /[^"\\\u0000-\u001f]*/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
const SPACE = /[ \t\n\r]*/y;

/** Whether lists and objects stand within one another more than `limit` times. Of a text that is no JSON it may say either. */
export function isDeeperThan(text: string, limit: number): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (character === '"') {
      at = endOfString(text, at);
    } else if (character === '{' || character === '[') {
      depth += 1;
      if (depth > limit) return true;
    } else if (character === '}' || character === ']') depth -= 1;
  }
  return false;
}

/** Where the string that begins there ends; the text's end where it does not. */
function endOfString(text: string, start: number): number {
  let at = start;
  for (;;) {
    at = text.indexOf('"', at + 1);
    if (at < 0) return text.length;
    let backslashes = 0;
    while (text[at - 1 - backslashes] === '\\') backslashes += 1;
    if (backslashes % 2 === 0) return at;
  }
}

/** Where the text stops being JSON, counted from 0; its length where it ends too early; null: it is JSON. */
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
    if (!take(QUOTE)) return false;
    do take(PLAIN_TEXT);
    while (take(ESCAPE));
    return take(QUOTE);
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

/** "line 2, column 5", both from 1 on. */
export function describePlace(text: string, at: number): string {
  const before = text.slice(0, at);
  return `line ${before.split('\n').length}, column ${at - before.lastIndexOf('\n')}`;
}
