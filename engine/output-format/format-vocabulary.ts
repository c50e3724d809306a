import { RecentMap } from '../../shared/base/runtime/recent-map.js';
import { COMPILED_FORMATS_LIMIT, MASKS_LIMIT_BYTES } from './format-limits.js';
import type { FormatVocabulary } from './output-constraint.js';
import type { TextAutomaton, AutomatonState } from './text-automaton.js';

/** The parts of a tokenizer that make a vocabulary; as in `Tokenizer`. */
export interface TokenTexts {
  tokenBytes(tokenId: number): Uint8Array;
  isSpecial(tokenId: number): boolean;
}

/** `vocabSize`: number of ids for which the model has logits. */
export function formatVocabulary(tokenizer: TokenTexts, vocabSize: number): TokenVocabulary {
  return new TokenVocabulary(tokenizer, vocabSize);
}

/** The automaton of a format, for one set of end tokens. */
export interface CompiledFormat {
  readonly automaton: TextAutomaton;
  readonly vocabulary: TokenVocabulary;
  readonly endTokenIds: ReadonlySet<number>;
  /** Bytes of the longest token, plus one. */
  readonly reach: number;
}

/** The tokens that may follow a state: 1 at their ids. */
export interface TokenMask {
  readonly mask: Uint8Array;
  /** The longest of the shortest completions, over all tokens of the mask. */
  readonly mostBytesLeft: number;
}

/** The tokens of a model as bytes, and the remembered formats and masks over them. */
export class TokenVocabulary implements FormatVocabulary {
  readonly tree: TokenTree;
  /** Special tokens, which may be read as their names if a format allows it. */
  readonly special: ReadonlyMap<number, Uint8Array>;
  /** For each byte: 1 if a token is this single byte. */
  readonly singleBytes = new Uint8Array(256);
  private readonly compiled = new RecentMap<string, CompiledFormat>(COMPILED_FORMATS_LIMIT);
  private readonly masks: RecentMap<AutomatonState, TokenMask>;

  constructor(
    private readonly tokenizer: TokenTexts,
    readonly vocabSize: number,
  ) {
    const plain: { tokenId: number; text: string }[] = [];
    const special = new Map<number, Uint8Array>();
    for (let tokenId = 0; tokenId < vocabSize; tokenId++) {
      const bytes = tokenizer.tokenBytes(tokenId);
      if (bytes.length === 0) continue;
      if (tokenizer.isSpecial(tokenId)) special.set(tokenId, bytes);
      else {
        plain.push({ tokenId, text: Buffer.from(bytes).toString('latin1') });
        if (bytes.length === 1) this.singleBytes[bytes[0] ?? 0] = 1;
      }
    }
    this.special = special;
    this.masks = new RecentMap(Math.max(1, Math.floor(MASKS_LIMIT_BYTES / vocabSize)));
    this.tree = treeOf(plain);
  }

  /** The bytes of a normal token; empty if the model has no such token. */
  bytesOf(tokenId: number): Uint8Array {
    return tokenId < this.vocabSize ? this.tokenizer.tokenBytes(tokenId) : new Uint8Array(0);
  }

  /** The format of a key, compiled unless it is remembered; a full map forgets the entry that was used least recently. */
  compiledFormat(key: string, compile: () => CompiledFormat): CompiledFormat {
    return this.compiled.of(key, compile);
  }

  hasCompiled(key: string): boolean {
    return this.compiled.has(key);
  }

  /** The mask of a state if it is remembered; this counts as its latest use. */
  rememberedMask(state: AutomatonState): TokenMask | null {
    return this.masks.get(state) ?? null;
  }

  /** Remembers the mask of a state; a full map forgets the entry that was used least recently. */
  keepMask(state: AutomatonState, mask: TokenMask): TokenMask {
    this.masks.set(state, mask);
    return mask;
  }
}

/** All beginnings of normal tokens, each once, before those that continue it. */
export interface TokenTree {
  /** For each beginning: its last byte, its length in bytes, and the index after all beginnings that continue it. */
  readonly lastByte: Uint8Array;
  readonly length: Uint16Array;
  readonly behind: Int32Array;
  /** The tokens that are equal to the beginning: `tokenIds` from firstToken[i] up to firstToken[i + 1]. */
  readonly firstToken: Int32Array;
  readonly tokenIds: Int32Array;
  readonly longest: number;
}

/** Longer tokens are left out: some vocabularies have tokens of hundreds of spaces, but none of thousands. */
const TOKEN_LENGTH_LIMIT_BYTES = 1024;

/** `text`: one character for each byte. */
function treeOf(tokens: readonly { tokenId: number; text: string }[]): TokenTree {
  const sorted = tokens
    .filter(({ text }) => text.length <= TOKEN_LENGTH_LIMIT_BYTES)
    .sort((a, b) => (a.text < b.text ? -1 : a.text > b.text ? 1 : a.tokenId - b.tokenId));
  const nodes = countNodes(sorted);
  const [lastByte, length] = [new Uint8Array(nodes), new Uint16Array(nodes)];
  const [behind, firstToken] = [new Int32Array(nodes), new Int32Array(nodes + 1)];
  /** Indexes of the beginnings of the previous text, by their length minus one. */
  let open: number[] = [];
  let [node, previous, longest] = [0, '', 0];
  for (const [place, { text }] of sorted.entries()) {
    const shared = sharedLength(previous, text);
    for (const closed of open.slice(shared)) behind[closed] = node;
    open = open.slice(0, shared);
    for (let at = shared; at < text.length; at++) {
      [lastByte[node], length[node], firstToken[node]] = [text.charCodeAt(at), at + 1, place];
      open.push(node++);
    }
    firstToken[node] = place + 1;
    previous = text;
    longest = Math.max(longest, text.length);
  }
  for (const closed of open) behind[closed] = node;
  return { lastByte, length, behind, firstToken, tokenIds: Int32Array.from(sorted, ({ tokenId }) => tokenId), longest };
}

function countNodes(sorted: readonly { text: string }[]): number {
  let [nodes, previous] = [0, ''];
  for (const { text } of sorted) {
    nodes += text.length - sharedLength(previous, text);
    previous = text;
  }
  return nodes;
}

function sharedLength(first: string, second: string): number {
  let shared = 0;
  while (shared < first.length && shared < second.length && first.charCodeAt(shared) === second.charCodeAt(shared)) {
    shared += 1;
  }
  return shared;
}
