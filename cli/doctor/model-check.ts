/** Checks whether odmoe runs a model, by its config.json or by all that is there. */
import { openModelSource } from '../../packs/open-model-source.js';
import { openAnyPack } from '../../packs/format/open-pack.js';
import { readConfigVerdict } from '../../packs/read-config-verdict.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { verdictLine } from '../output/verdict-report.js';
import { fail, ok, type Check } from './check.js';

const OTHERS = 'take one of the models in docs/models.md';

/** `path`: a pack, a checkpoint, a GGUF file, or a config.json alone. */
export async function checkModel(path: string): Promise<Check> {
  const name = `model ${path}`;
  try {
    const judged = await readConfigVerdict(path);
    if (judged === null) {
      const source = await openModelSource(path, openAnyPack);
      return ok(name, source.kind === 'pack' ? 'a pack: runs' : `${source.family}: runs`);
    }
    const { verdict } = judged;
    const found = verdictLine(verdict);
    if (verdict.family === null) return fail(name, found, OTHERS);
    return ok(name, `${verdict.family}, its weights are not there: ${found}`);
  } catch (thrown) {
    const { message, code } = toOdmoeError(thrown);
    return fail(name, message, code === 'MODEL_UNSUPPORTED' ? OTHERS : '');
  }
}
