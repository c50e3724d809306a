import type { GenerateRequest, LogitBias, OutputFormat } from '../../shared/wire/messages.js';
import { jsonFormat } from '../../shared/language/response-format.js';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';

export const VOCABULARY = 1024;
/** The ids below are special tokens. */
const FIRST_TOKEN = 3;
const WORDS = ['the', ' fox', ' and', ' a', ' story', ' about', ' two', '.', ' 17', ' is', '\n', 'é'];
/** Plain JSON, schemas for each kind of value, one of several texts, and a call after free text. */
const FORMATS: readonly OutputFormat[] = [
  jsonFormat('{"type":"object"}'),
  jsonFormat(
    JSON.stringify({
      type: 'object',
      properties: {
        name: { type: 'string', maxLength: 12 },
        sort: { enum: ['fox', 'owl', null] },
        counts: { type: 'array', items: { type: 'integer', minimum: -9, maximum: 120 }, minItems: 1 },
        code: { type: 'string', pattern: '^[a-c]+-[0-9]{2}$' },
      },
      required: ['sort', 'counts'],
      additionalProperties: false,
    }),
  ),
  jsonFormat('{"anyOf":[{"type":"number"},{"type":"boolean"},{"const":"é fox"}]}'),
  { alternatives: [' the fox', ' and a story', '17'].map((literal) => ({ parts: [{ kind: 'literal', literal }] })) },
  {
    alternatives: [
      {
        parts: [
          { kind: 'until', until: '.' },
          { kind: 'literal', literal: '{"fox":' },
          { kind: 'jsonSchema', jsonSchema: '{"type":"integer"}' },
          { kind: 'literal', literal: '}' },
        ],
      },
      { parts: [{ kind: 'schemaText', schemaText: { jsonSchema: '{"type":"string"}', without: '<' } }] },
    ],
  },
  {
    alternatives: [
      {
        parts: [
          { kind: 'schemaText', schemaText: { jsonSchema: '{"minLength":2,"maxLength":40}', without: '.' } },
          { kind: 'literal', literal: '.' },
        ],
      },
    ],
  },
];
const STOPS = [' the', 'e', '.', ' a b', 'zz', '\n'];

/** More tokens than any tiny model has positions. */
const TOO_LONG_PROMPT = 700;

export function drawRequest(random: SeededRandom): GenerateRequest {
  const request = withFormat(random.fork('format'), withMore(random.fork('more'), drawValidRequest(random)));
  return random.chance(0.04) ? spoiled(random, request) : request;
}

/** A request that is refused: it has a token that the model does not have, or more positions than the model has. */
function spoiled(random: SeededRandom, request: GenerateRequest): GenerateRequest {
  const promptTokenIds = random.chance(0.5)
    ? [3, VOCABULARY + random.int(9)]
    : Array.from({ length: TOO_LONG_PROMPT }, () => 5);
  return { ...request, text: '', messages: [], promptTokenIds };
}

function drawValidRequest(random: SeededRandom): GenerateRequest {
  const asText = random.chance(0.4);
  const asMessages = asText && random.chance(0.3);
  const length = random.pick([1, 2, 5, 9, 20, 40]);
  const greedy = random.chance(0.4);
  return {
    text: asText && !asMessages ? Array.from({ length }, () => random.pick(WORDS)).join('') : '',
    messages: asMessages ? drawMessages(random) : [],
    promptTokenIds: asText ? [] : drawTokens(random, length),
    raw: !asMessages && random.chance(0.5),
    maxTokens: random.chance(0.08) ? 20 + random.int(30) : 1 + random.int(14),
    sampling: {
      temperature: greedy ? 0 : random.pick([0.5, 1, 3]),
      topK: random.pick([0, 0, 1, 20]),
      topP: random.pick([0, 0.5, 0.9]),
      minP: random.pick([0, 0, 0.05]),
      repetitionPenalty: random.pick([0, 0, 1.3]),
      seed: random.int(2 ** 32),
    },
    stop: random.chance(0.25) ? [random.pick(STOPS), random.pick(STOPS)] : [],
    ignoreEos: random.chance(0.5),
    logprobs: random.pick([0, 1, 5]),
  };
}

/** Adds penalties over the answer, biases, and options for what is reported and shown of prompt and answer. */
function withMore(random: SeededRandom, request: GenerateRequest): GenerateRequest {
  const { sampling, logprobs } = request;
  const biases = random.chance(0.15) ? drawLogitBias(random) : [];
  return {
    ...request,
    ...(random.chance(0.04) ? { maxTokens: 0 } : {}),
    sampling: sampling && {
      ...sampling,
      presencePenalty: random.pick([0, 0, 0, 0.7, -0.4]),
      frequencyPenalty: random.pick([0, 0, 0, 1.1, -0.2]),
      logitBias: biases,
    },
    promptLogprobs: logprobs > 0 && random.chance(0.3),
    showSpecialTokens: random.chance(0.15),
  };
}

/** An answer with a format ends when the format does, so the request must not ignore the end token. */
function withFormat(random: SeededRandom, request: GenerateRequest): GenerateRequest {
  if (request.sampling === null || !random.chance(0.15)) return request;
  return { ...request, ignoreEos: false, sampling: { ...request.sampling, outputFormat: random.pick(FORMATS) } };
}

/** Some of the most frequent tokens are never chosen, some others nearly always; both sets contain special tokens. */
function drawLogitBias(random: SeededRandom): LogitBias[] {
  const tokenIds = new Set(Array.from({ length: 1 + random.int(5) }, () => random.int(VOCABULARY)));
  return [...tokenIds].map((tokenId) => ({ tokenId, bias: random.pick([-100, -100, -3.5, 4, 9]) }));
}

/** Normal tokens, without special ones. */
export function drawTokens(random: SeededRandom, length: number): number[] {
  return Array.from({ length }, () => FIRST_TOKEN + random.int(VOCABULARY - FIRST_TOKEN));
}

/** A conversation of one or more turns. */
function drawMessages(random: SeededRandom): GenerateRequest['messages'] {
  const turns = random.pick([1, 3]);
  return Array.from({ length: turns }, (_, turn) => ({
    role: turn % 2 === 0 ? 'user' : 'assistant',
    content: Array.from({ length: random.int(5) }, () => random.pick(WORDS)).join(''),
  }));
}
