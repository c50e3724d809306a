import assert from 'node:assert/strict';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import { packageRoot } from '../../shared/config/package-root.js';
import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import { formatVocabulary } from '../../shared/output-format/format-vocabulary.js';
import { jsonFormat } from '../../shared/output-format/response-format.js';
import { SeededRandom } from '../../shared/runtime/seeded-random.js';
import { loadTokenizer } from '../../shared/tokenizer/load-tokenizer.js';
import { drawSchema, type DrawnSchema } from './drawn-schemas.js';
import {
  answerAtRandom,
  constraintOf,
  idsOf,
  smallVocabulary,
  textOfAnswer,
  type AnsweringVocabulary,
} from './format-answers.js';

const SCHEMAS = 400;
/** Schemas of one test. */
const SHARE = 100;
const ROOM_TOKENS = 150;

/** The schema of a seed, and its constraint; null where it contradicts itself, which must be said properly. */
function drawn(
  seed: number,
  answering: AnsweringVocabulary,
): { schema: DrawnSchema; text: string; constraint: ReturnType<typeof constraintOf> } | null {
  const schema = drawSchema(new SeededRandom(seed));
  const text = JSON.stringify(schema);
  try {
    return { schema, text, constraint: constraintOf(jsonFormat(text), answering) };
  } catch (thrown) {
    assert.ok(thrown instanceof OdmoeError && thrown.code === 'REQUEST_INVALID', `${text}: ${String(thrown)}`);
    assert.match(thrown.message, /no (JSON )?value is taken/, text);
    return null;
  }
}

/** Answers a share of the schemas at random; each answer must be whole and valid. */
function answerShare(first: number, answering: AnsweringVocabulary): void {
  let refused = 0;
  for (let seed = first; seed < first + SHARE; seed++) {
    const made = drawn(seed, answering);
    if (made === null) {
      refused += 1;
      continue;
    }
    const validate = new Ajv({ strict: false }).compile(JSON.parse(made.text) as DrawnSchema);
    for (const room of seed % 4 === 0 ? [ROOM_TOKENS, 40] : [ROOM_TOKENS]) {
      const { tokenIds } = answerAtRandom(made.constraint, answering, room, new SeededRandom(seed + 0.5 * 2 ** 33));
      const text = textSoFar(tokenIds, answering);
      let value: unknown;
      try {
        value = JSON.parse(text);
      } catch {
        // An answer that had no room from its start may stay without an end.
        if (room === ROOM_TOKENS) assert.fail(`seed ${seed}: ${made.text} was answered by ${text}`);
        continue;
      }
      assert.equal(text, textOfAnswer(tokenIds, answering), 'not UTF-8');
      assert.ok(validate(value), `seed ${seed}: ${made.text} was answered by ${text}`);
    }
  }
  assert.ok(refused < SHARE / 4, `${refused} of ${SHARE} schemas contradict themselves`);
}

describe('answers by JSON schemas', () => {
  const small = smallVocabulary();

  let demo: AnsweringVocabulary;
  before(async () => {
    const texts = await loadTokenizer(join(packageRoot(), 'models', 'demo'));
    demo = { texts, vocabulary: formatVocabulary(texts, texts.vocabularySize), endTokenIds: [1] };
  });

  for (let first = 0; first < SCHEMAS; first += SHARE) {
    it(`are valid for ${SHARE} drawn schemas from ${first} on, in tokens of all kinds`, () => {
      answerShare(first, small);
    });

    it(`are valid for ${SHARE} drawn schemas from ${first} on, in the demo model's tokens`, () => {
      answerShare(first, demo);
    });
  }

  it('may go on with a token if, and only if, the mask says so', () => {
    for (let seed = 0; seed < 40; seed++) {
      const made = drawn(seed, small);
      if (made === null) continue;
      const { tokenIds } = answerAtRandom(made.constraint, small, 40, new SeededRandom(seed));
      for (let length = 0; length <= tokenIds.length; length += 3) {
        const answer = tokenIds.slice(0, length);
        const mask: Uint8Array | null = made.constraint.allowed(answer, 100_000);
        assert.ok(mask !== null);
        const ids: number[] = idsOf(mask).filter((id) => !small.endTokenIds.includes(id));
        const other = constraintOf(jsonFormat(made.text), small);
        const followed = [...Array(small.vocabulary.vocabSize).keys()].filter(
          (id) => other.allowed([...answer, id], 100_000) !== null,
        );
        assert.deepEqual(ids, followed, `seed ${seed} after ${JSON.stringify(textSoFar(answer, small))}`);
      }
    }
  });
});

/** Parts of characters are shown as such. */
function textSoFar(answer: readonly number[], { texts }: AnsweringVocabulary): string {
  return Buffer.concat(answer.map((id) => texts.tokenBytes(id))).toString();
}
