/** Answers at random by drawn schemas, which must be whole and valid: some in npm test, more in npm run test:long. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import ajvFormats from 'ajv-formats';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { formatVocabulary } from '../../engine/output-format/format-vocabulary.js';
import { jsonFormat } from '../../shared/language/response-format.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import { drawSchema, type DrawnSchema } from './drawn-schemas.js';
import { answerAtRandom, constraintOf, textOfAnswer, type AnsweringVocabulary } from './format-answers.js';

const ROOM_TOKENS = 150;

/** The schema of a seed and its constraint; null if the schema contradicts itself, which must be refused with the proper error. */
export function drawn(
  seed: number,
  answering: AnsweringVocabulary,
): { schema: DrawnSchema; text: string; constraint: ReturnType<typeof constraintOf> } | null {
  const schema = drawSchema(new SeededRandom(seed));
  const text = JSON.stringify(schema);
  try {
    return { schema, text, constraint: constraintOf(jsonFormat(text), answering) };
  } catch (thrown) {
    assert.ok(thrown instanceof OdmoeError && thrown.code === 'REQUEST_INVALID', `${text}: ${String(thrown)}`);
    assert.match(thrown.message, /no (JSON )?value is taken|may take the same value/, text);
    return null;
  }
}

/** Answers `count` schemas from `first` on at random; each answer must be whole and valid. */
export function answerSchemas(first: number, count: number, answering: AnsweringVocabulary): void {
  let refused = 0;
  for (let seed = first; seed < first + count; seed++) {
    const made = drawn(seed, answering);
    if (made === null) {
      refused += 1;
      continue;
    }
    const ajv = new Ajv2020({ strict: false, logger: false });
    ajvFormats.default(ajv);
    const validate = ajv.compile(JSON.parse(made.text) as DrawnSchema);
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
  assert.ok(refused < count / 4, `${refused} of ${count} schemas contradict themselves`);
}

/** The demo model's tokens. */
export async function demoVocabulary(): Promise<AnsweringVocabulary> {
  const texts = await loadTokenizer(join(packageRoot(), 'models', 'demo'));
  return { texts, vocabulary: formatVocabulary(texts, texts.vocabularySize), endTokenIds: [1] };
}

/** Parts of characters are shown as such. */
export function textSoFar(answer: readonly number[], { texts }: AnsweringVocabulary): string {
  return Buffer.concat(answer.map((id) => texts.tokenBytes(id))).toString();
}
