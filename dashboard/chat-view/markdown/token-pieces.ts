/** A part of a text that lies within one token. */
export interface TokenPiece {
  token: number;
  from: number;
  to: number;
}

/** The place in the text where each token ends. */
export function tokenEnds(tokens: readonly { text: string }[]): number[] {
  let end = 0;
  return tokens.map(({ text }) => (end += text.length));
}

/** Divides a range of the text where tokens end. `ends`: of all tokens, ascending. */
export function tokenPieces(ends: readonly number[], from: number, to: number): TokenPiece[] {
  const pieces: TokenPiece[] = [];
  let at = from;
  for (let token = tokenAt(ends, from); at < to && token < ends.length; token++) {
    const end = Math.min(to, ends[token] ?? to);
    // A token without text has no piece.
    if (end > at) pieces.push({ token, from: at, to: end });
    at = Math.max(at, end);
  }
  return pieces;
}

/** The token that has the character at this place. */
function tokenAt(ends: readonly number[], place: number): number {
  let low = 0;
  let high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ends[middle] ?? 0) > place) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Divides a range into parts of at most `most` characters, never within a character of two UTF-16 units. Returns where each part begins. */
export function partBegins(source: string, from: number, to: number, most: number): number[] {
  const begins = [from];
  for (let at = from + most; at < to; at += most) {
    at = characterBegin(source, at);
    begins.push(at);
  }
  return begins;
}

/** Where the character begins that has its UTF-16 unit at this place. */
function characterBegin(source: string, at: number): number {
  const unit = source.charCodeAt(at);
  return unit >= 0xdc00 && unit <= 0xdfff ? at - 1 : at;
}

/** Divides a text into parts of `least` to twice as many characters, behind a blank where there is one. A longer text has the same first parts. */
export function wordParts(source: string, from: number, to: number, least: number): { from: number; to: number }[] {
  const parts: { from: number; to: number }[] = [];
  let begin = from;
  for (;;) {
    const latest = begin + 2 * least;
    const blank = source.slice(begin + least, Math.min(to, latest)).search(/\s\S/);
    if (blank < 0 && latest >= to) return [...parts, { from: begin, to }];
    const end = blank < 0 ? characterBegin(source, latest) : begin + least + blank + 1;
    parts.push({ from: begin, to: end });
    begin = end;
  }
}

/** Divides lines into parts of at least `least` characters. The line end between two parts belongs to neither; no empty line is beside it. */
export function lineParts(source: string, from: number, to: number, least: number): { from: number; to: number }[] {
  const parts: { from: number; to: number }[] = [];
  const ends = /[^\n]\n(?=[^\n])/g;
  let begin = from;
  for (;;) {
    ends.lastIndex = begin + least;
    const end = ends.exec(source)?.index;
    if (end === undefined || end + 2 >= to) return [...parts, { from: begin, to }];
    parts.push({ from: begin, to: end + 1 });
    begin = end + 2;
  }
}
