import { smallVocabulary } from '../../unit/format-answers.js';
import { answerSchemas, demoVocabulary } from '../../unit/schema-answers.js';

/** The first schema of this test. `npm test` covers the earlier ones. */
const FROM = 400;
const SCHEMAS = 1000;
const LIMIT_MS = 300_000;

describe('answers by JSON schemas', function () {
  this.timeout(LIMIT_MS);

  it(`are valid for ${SCHEMAS} drawn schemas from ${FROM} on, in tokens of all kinds`, () => {
    answerSchemas(FROM, SCHEMAS, smallVocabulary());
  });

  it(`are valid for ${SCHEMAS} drawn schemas from ${FROM} on, in the demo model's tokens`, async () => {
    answerSchemas(FROM, SCHEMAS, await demoVocabulary());
  });
});
