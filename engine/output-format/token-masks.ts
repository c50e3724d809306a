import type { CompiledFormat, TokenMask } from './format-vocabulary.js';
import type { SteppedWork } from '../../shared/base/runtime/work-steps.js';
import type { AutomatonState } from './text-automaton.js';

/** Beginnings of tokens that are checked in one step: some milliseconds of work. */
const STEP_WORK = 16_384;
/** One frame of a state that is left, or reached for the first time, costs as much time as this many beginnings. */
const WAY_WORK = 32;

/** A state with more frames is not replaced by its clamped state: if frames must be dropped, the two states might drop different ones. */
const CLAMPED_FRAMES_LIMIT = 32;

/**
 * The tokens that may follow. `room`: tokens that the answer may still have; a completing text counts one token per byte. If not even the
 * shortest text fits, the room is ignored. The array is reused. Yields sometimes so that other work can run: a mask of 150,000 tokens may take
 * 200 ms.
 */
export function* tokensAllowed(
  format: CompiledFormat,
  state: AutomatonState,
  room: number,
  own: Uint8Array,
): SteppedWork<Uint8Array> {
  const { automaton, vocabulary, reach } = format;
  const { state: clamped, bytesLess } =
    state.frames.length > CLAMPED_FRAMES_LIMIT ? { state, bytesLess: 0 } : automaton.clamp(state, reach);
  const known = vocabulary.rememberedMask(clamped) ?? vocabulary.keepMask(clamped, yield* newMask(format, clamped));
  if (state.bytes > room || known.mostBytesLeft + bytesLess < room) return known.mask;
  own.fill(0);
  yield* markTokens(format, state, room - 1, own);
  return own;
}

function* newMask(format: CompiledFormat, state: AutomatonState): SteppedWork<TokenMask> {
  const mask = new Uint8Array(format.vocabulary.vocabSize);
  return { mask, mostBytesLeft: yield* markTokens(format, state, Infinity, mask) };
}

/** The state after a token; null: the token is not allowed. An end token is not part of a text. */
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

/** Sets 1 for each token after which at most `mostBytes` complete the text; returns the most bytes that one of them leaves. */
function* markTokens(
  format: CompiledFormat,
  start: AutomatonState,
  mostBytes: number,
  mask: Uint8Array,
): SteppedWork<TokenMask['mostBytesLeft']> {
  const mostOfPlain = yield* markPlain(format, start, mostBytes, mask);
  const mostOfSpecial = yield* markSpecial(format, start, mostBytes, mask);
  const most = Math.max(mostOfPlain, mostOfSpecial);
  for (const tokenId of format.endTokenIds) if (tokenId < mask.length) mask[tokenId] = start.isWhole ? 1 : 0;
  return most;
}

function* markPlain(
  { automaton, vocabulary }: CompiledFormat,
  start: AutomatonState,
  mostBytes: number,
  mask: Uint8Array,
): SteppedWork<number> {
  const { lastByte, length, behind, firstToken, tokenIds } = vocabulary.tree;
  /** The state after each beginning of the current token text, by its length. */
  const states: AutomatonState[] = [start];
  let mostLeft = 0;
  let work = 0;
  for (let node = 0; node < lastByte.length;) {
    if (work >= STEP_WORK) {
      work = 0;
      yield;
    }
    work += 1;
    const depth = length[node] ?? 1;
    const before = states[depth - 1];
    const byte = lastByte[node] ?? 0;
    const known = before?.next[byte];
    const after = known ?? (before === undefined ? null : automaton.next(before, byte));
    if (known === undefined) work += WAY_WORK * (waysOf(before) + waysOf(after));
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

function* markSpecial(
  format: CompiledFormat,
  start: AutomatonState,
  mostBytes: number,
  mask: Uint8Array,
): SteppedWork<number> {
  const takesSpecial = start.frames.some(({ node }) => node.kind === 'machine' && node.machine.takesSpecialTokens);
  if (!takesSpecial) return 0;
  let mostLeft = 0;
  let work = 0;
  for (const [tokenId, name] of format.vocabulary.special) {
    if (work >= STEP_WORK) {
      work = 0;
      yield;
    }
    work += WAY_WORK * name.length * waysOf(start);
    const after = stateAfterToken(format, start, tokenId);
    if (after === null || after.bytes > mostBytes) continue;
    mask[tokenId] = 1;
    mostLeft = Math.max(mostLeft, after.bytes);
  }
  return mostLeft;
}

function waysOf(state: AutomatonState | null | undefined): number {
  return state?.frames.length ?? 0;
}
