import assert from 'node:assert/strict';
import { jsonFormat } from '../../shared/language/response-format.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { runAtOnce } from '../../shared/base/runtime/work-steps.js';
import {
  answerAtRandom,
  type AnsweringVocabulary,
  constraintOf,
  idsOf,
  smallVocabulary,
  textOfAnswer,
} from './format-answers.js';
import { answerSchemas, demoVocabulary, drawn, textSoFar } from './schema-answers.js';

/** More of them: test/long/unit/output-format-schemas.test.ts. */
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

  it('have all digits of integers that no double can hold', () => {
    const [below, exact, above] = ['9007199254740992', '9007199254740993', '9007199254740994'];
    const schemas = [
      `{"const":${exact}}`,
      `{"enum":[${exact}],"maximum":${exact}}`,
      `{"enum":[${below},${exact},${above}],"exclusiveMinimum":${below},"exclusiveMaximum":${above}}`,
      `{"type":"integer","minimum":${exact},"maximum":${exact}}`,
      `{"type":"integer","exclusiveMinimum":${below},"exclusiveMaximum":${above}}`,
    ];
    for (const schema of schemas) {
      const { tokenIds } = answerAtRandom(constraintOf(jsonFormat(schema), small), small, 40, new SeededRandom(1));
      assert.equal(textOfAnswer(tokenIds, small), exact, schema);
    }
    const whole = constraintOf(jsonFormat(`{"const":{"a":[${exact}]}}`), small);
    const { tokenIds } = answerAtRandom(whole, small, 60, new SeededRandom(1));
    assert.equal(textOfAnswer(tokenIds, small), `{"a":[${exact}]}`);
  });

  it('may continue with a token if, and only if, the mask allows it', () => {
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
