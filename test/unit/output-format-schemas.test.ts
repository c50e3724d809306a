import assert from 'node:assert/strict';
import { jsonFormat } from '../../shared/output-format/response-format.js';
import { SeededRandom } from '../../shared/runtime/seeded-random.js';
import { runAtOnce } from '../../shared/runtime/slices.js';
import { answerAtRandom, constraintOf, idsOf, smallVocabulary, type AnsweringVocabulary } from './format-answers.js';
import { answerSchemas, demoVocabulary, drawn, textSoFar } from './schema-answers.js';

/** More of them: test/long/output-format-schemas.test.ts. */
const SCHEMAS = 400;
/** Schemas of one test. */
const SHARE = 100;

describe('answers by JSON schemas', () => {
  const small = smallVocabulary();

  let demo: AnsweringVocabulary;
  before(async () => {
    demo = await demoVocabulary();
  });

  for (let first = 0; first < SCHEMAS; first += SHARE) {
    it(`are valid for ${SHARE} drawn schemas from ${first} on, in tokens of all kinds`, () => {
      answerSchemas(first, SHARE, small);
    });

    it(`are valid for ${SHARE} drawn schemas from ${first} on, in the demo model's tokens`, () => {
      answerSchemas(first, SHARE, demo);
    });
  }

  it('may go on with a token if, and only if, the mask says so', () => {
    for (let seed = 0; seed < 40; seed++) {
      const made = drawn(seed, small);
      if (made === null) continue;
      const { tokenIds } = answerAtRandom(made.constraint, small, 40, new SeededRandom(seed));
      for (let length = 0; length <= tokenIds.length; length += 3) {
        const answer = tokenIds.slice(0, length);
        const mask: Uint8Array | null = runAtOnce(made.constraint.allowed(answer, 100_000));
        assert.ok(mask !== null);
        const ids: number[] = idsOf(mask).filter((id) => !small.endTokenIds.includes(id));
        const other = constraintOf(jsonFormat(made.text), small);
        const followed = [...Array(small.vocabulary.vocabSize).keys()].filter(
          (id) => runAtOnce(other.allowed([...answer, id], 100_000)) !== null,
        );
        assert.deepEqual(ids, followed, `seed ${seed} after ${JSON.stringify(textSoFar(answer, small))}`);
      }
    }
  });
});
