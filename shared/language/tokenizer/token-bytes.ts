import { z } from 'zod';

const definitionSchema = z.looseObject({ decoder: z.looseObject({ type: z.string() }).nullish() });
const sequenceSchema = z.looseObject({ decoders: z.array(z.looseObject({ type: z.string() })) });
const replaceSchema = z.looseObject({
  pattern: z.union([z.looseObject({ String: z.string() }), z.looseObject({ Regex: z.string() })]),
  content: z.string().default(''),
});
const metaspaceSchema = z.looseObject({ replacement: z.string().default('\u2581') });
const suffixSchema = z.looseObject({ suffix: z.string().default('') });
const prefixSchema = z.looseObject({ prefix: z.string().default('##') });

/** A token during decoding: text, or bytes once a step has converted it. */
type TokenText = string | Uint8Array;
type DecodeText = (text: TokenText) => TokenText;

const BYTE_TOKEN = /^<0x([0-9A-Fa-f]{2})>$/;
const encoder = new TextEncoder();

/** Bytes of one token's text. `isAdded`: one of tokenizer.json's added tokens, whose content is not encoded by a byte table. */
export type TokenBytesOf = (token: string, isAdded: boolean) => Uint8Array;

/**
 * The bytes that each token adds to a decoded text, by the decoder of tokenizer.json. Steps that depend on neighbouring tokens are applied as in
 * the middle of a text. WordPiece and CTC, which no supported family uses, are approximate: their clean-up is left out.
 */
export function tokenBytesBy(definition: object): TokenBytesOf {
  const decoder = definitionSchema.safeParse(definition).data?.decoder ?? null;
  // Without a decoder, tokens are joined by spaces.
  const decode: (isAdded: boolean) => DecodeText = (isAdded) =>
    decoder === null ? onText((text) => ` ${text}`) : stepOf(decoder, isAdded);
  const [decodePlain, decodeAdded] = [decode(false), decode(true)];
  return (token, isAdded) => {
    const text = (isAdded ? decodeAdded : decodePlain)(token);
    return typeof text === 'string' ? encoder.encode(text) : text;
  };
}

type Step = z.infer<typeof definitionSchema>['decoder'] & object;

function stepOf(decoder: Step, isAdded: boolean): DecodeText {
  switch (decoder.type) {
    case 'Sequence': {
      const steps = (sequenceSchema.safeParse(decoder).data?.decoders ?? []).map((step) => stepOf(step, isAdded));
      return (text) => steps.reduce((decoded, step) => step(decoded), text);
    }
    case 'ByteLevel':
      return isAdded ? unchanged : onText(bytesOfByteLevel);
    case 'ByteFallback':
      return onText(byteOfFallback);
    case 'Replace':
      return replacing(decoder);
    case 'Metaspace': {
      const replacement = metaspaceSchema.safeParse(decoder).data?.replacement ?? '\u2581';
      return onText((text) => text.replaceAll(replacement, ' '));
    }
    case 'BPEDecoder': {
      const suffix = suffixSchema.safeParse(decoder).data?.suffix ?? '';
      return suffix === '' ? unchanged : onText((text) => text.replaceAll(suffix, ' '));
    }
    case 'WordPiece': {
      const prefix = prefixSchema.safeParse(decoder).data?.prefix ?? '##';
      return onText((text) => (prefix !== '' && text.startsWith(prefix) ? text.slice(prefix.length) : ` ${text}`));
    }
    // Strip cuts the ends of a text, and Fuse joins tokens: neither changes a token in the middle.
    default:
      return unchanged;
  }
}

function unchanged(text: TokenText): TokenText {
  return text;
}

function onText(change: (text: string) => TokenText): DecodeText {
  return (text) => (typeof text === 'string' ? change(text) : text);
}

function replacing(decoder: Step): DecodeText {
  const replace = replaceSchema.safeParse(decoder).data;
  if (replace === undefined) return unchanged;
  const { pattern, content } = replace;
  const found = 'String' in pattern ? pattern['String'] : new RegExp(String(pattern['Regex']), 'gu');
  return onText((text) => text.replaceAll(found as string, () => content));
}

function byteOfFallback(text: string): TokenText {
  const byte = BYTE_TOKEN.exec(text)?.[1];
  return byte === undefined ? text : Uint8Array.of(parseInt(byte, 16));
}

/** Each character of the text stands for a byte. A token with any other character stays unchanged. */
function bytesOfByteLevel(text: string): TokenText {
  const bytes: number[] = [];
  for (const character of text) {
    const byte = BYTE_OF_CHARACTER.get(character);
    if (byte === undefined) return text;
    bytes.push(byte);
  }
  return Uint8Array.from(bytes);
}

/** GPT-2's table: printable bytes stand for themselves; the others are, in order, the characters from U+0100 on. */
const BYTE_OF_CHARACTER: ReadonlyMap<string, number> = byteTable();

function byteTable(): Map<string, number> {
  const prints = (byte: number): boolean =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
  const table = new Map<string, number>();
  let others = 0;
  for (let byte = 0; byte < 256; byte++) {
    table.set(String.fromCodePoint(prints(byte) ? byte : 0x100 + others), byte);
    if (!prints(byte)) others += 1;
  }
  return table;
}
