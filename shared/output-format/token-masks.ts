import type { CompiledFormat, TokenMask } from './format-vocabulary.js';
import type { AutomatonState } from './text-automaton.js';

/** A state with more ways is not replaced by its clamped one: where ways must be left out, those of the two might differ. */
const CLAMPED_FRAMES_LIMIT = 32;

/**
 * Tokens that may follow. `room`: tokens that the answer may still have; a text is counted with a token for each byte. Where not even the shortest
 * text fits, the room is not looked at. The array is used again.
 */
export function tokensAllowed(
  format: CompiledFormat,
  state: AutomatonState,
  room: number,
  own: Uint8Array,
): Uint8Array {
  const { automaton, vocabulary, reach } = format;
  const { state: clamped, bytesLess } =
    state.frames.length > CLAMPED_FRAMES_LIMIT ? { state, bytesLess: 0 } : automaton.clamp(state, reach);
  const known = vocabulary.maskOf(clamped, () => {
    const mask = new Uint8Array(vocabulary.vocabSize);
    return { mask, mostBytesLeft: markTokens(format, clamped, Infinity, mask) };
  });
  if (state.bytes > room || known.mostBytesLeft + bytesLess < room) return known.mask;
  own.fill(0);
  markTokens(format, state, room - 1, own);
  return own;
}

/** The state after a token; null: it may not come. An end token is no part of a text. */
export function stateAfterToken(
  { automaton, vocabulary, endTokenIds }: CompiledFormat,
  state: AutomatonState,
  tokenId: number,
): AutomatonState | null {
  if (endTokenIds.has(tokenId)) return null;
  const name = vocabulary.special.get(tokenId);
  const bytes = name ?? vocabulary.bytesOf(tokenId);
  let after: AutomatonState | null = bytes.length === 0 ? null : state;
  for (const byte of bytes) {
    if (after === null) return null;
    after = name === undefined ? automaton.next(after, byte) : automaton.nextSpecial(after, byte);
  }
  return after;
}

/** Sets 1 for each token after which at most `mostBytes` complete the text; gives the most that one of them leaves. */
function markTokens(
  format: CompiledFormat,
  start: AutomatonState,
  mostBytes: number,
  mask: Uint8Array,
): TokenMask['mostBytesLeft'] {
  const most = Math.max(markPlain(format, start, mostBytes, mask), markSpecial(format, start, mostBytes, mask));
  for (const tokenId of format.endTokenIds) if (tokenId < mask.length) mask[tokenId] = start.isWhole ? 1 : 0;
  return most;
}

function markPlain(
  { automaton, vocabulary }: CompiledFormat,
  start: AutomatonState,
  mostBytes: number,
  mask: Uint8Array,
): number {
  const { lastByte, length, behind, firstToken, tokenIds } = vocabulary.tree;
  /** The state after each beginning of the text that is looked at, by its length. */
  const states: AutomatonState[] = [start];
  let mostLeft = 0;
  for (let node = 0; node < lastByte.length;) {
    const depth = length[node] ?? 1;
    const before = states[depth - 1];
    const byte = lastByte[node] ?? 0;
    const after = before === undefined ? null : (before.next[byte] ?? automaton.next(before, byte));
    if (after === null) {
      node = behind[node] ?? lastByte.length;
      continue;
    }
    states[depth] = after;
    const end = firstToken[node + 1] ?? 0;
    const first = firstToken[node] ?? 0;
    if (end > first && after.bytes <= mostBytes) {
      for (let place = first; place < end; place++) mask[tokenIds[place] ?? 0] = 1;
      if (after.bytes > mostLeft) mostLeft = after.bytes;
    }
    node += 1;
  }
  return mostLeft;
}

function markSpecial(format: CompiledFormat, start: AutomatonState, mostBytes: number, mask: Uint8Array): number {
  const takesSpecial = start.frames.some(({ node }) => node.kind === 'machine' && node.machine.takesSpecialTokens);
  if (!takesSpecial) return 0;
  let mostLeft = 0;
  for (const tokenId of format.vocabulary.special.keys()) {
    const after = stateAfterToken(format, start, tokenId);
    if (after === null || after.bytes > mostBytes) continue;
    mask[tokenId] = 1;
    mostLeft = Math.max(mostLeft, after.bytes);
  }
  return mostLeft;
}
