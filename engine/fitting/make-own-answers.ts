import type { Device, Model } from '../../native/index.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { formatByteSize } from '../../shared/base/text/byte-size.js';
import { openTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import { loadDenseWeights, loadResidentExperts } from '../loading/load-weights.js';
import { firstSequences } from './fitting-tokens.js';
import type { FittingFolder } from './fitting-folder.js';
import { answerBatch } from './own-answers.js';
import { throwIfInterrupted } from './interruption.js';

/** Batches without a sequence, one after another, after which a model is said to make up nothing. */
const FRUITLESS_BATCHES = 4;

interface AnswersRequest {
  readonly tokens: number;
  readonly seed: number;
  readonly memoryBytes: number;
  readonly signal: AbortSignal;
  readonly onProgress: (stage: 'answers', done: number, total: number) => void;
}

/**
 * Sequences of the model's own, as many as have so many tokens. The folder keeps each finished batch.
 * @throws USAGE if memory does not hold the model, CANCELLED, and the errors of loading
 */
export async function makeOwnAnswers(
  device: Device,
  pack: Pack,
  request: AnswersRequest,
  folder: FittingFolder,
): Promise<(readonly number[])[]> {
  const sequences: number[][] = [];
  let [made, fruitless] = [0, 0];
  let answering: Model | null = null;
  try {
    const tokenizer = await openTokenizer(pack.directory, null);
    const { vocabSize, maxPositions } = pack.shape;
    for (let batch = 0; made < request.tokens; batch += 1) {
      throwIfInterrupted(request.signal);
      const kept = await folder.batch(batch);
      answering ??= kept === null ? await loadWholeModel(device, pack) : null;
      const { eosTokenIds } = pack;
      const { signal } = request;
      const model = { model: answering as Model, tokenizer, eosTokenIds, vocabSize, maxPositions, signal };
      const some = kept ?? (await answerBatch(model, request.seed, batch));
      if (kept === null) await folder.keepBatch(batch, some);
      fruitless = some.length === 0 ? fruitless + 1 : 0;
      if (fruitless === FRUITLESS_BATCHES) {
        throw new OdmoeError(
          'USAGE',
          `${pack.directory}: the model makes up no questions to answer: give a text with --text`,
        );
      }
      sequences.push(...some);
      made += some.reduce((sum, { length }) => sum + length, 0);
      request.onProgress('answers', Math.min(made, request.tokens), request.tokens);
    }
    return firstSequences(sequences, request.tokens);
  } catch (thrown) {
    throw inWords(thrown, pack, request.memoryBytes);
  } finally {
    answering?.dispose();
  }
}

async function loadWholeModel(device: Device, pack: Pack): Promise<Model> {
  const model = device.createModel(pack.shape);
  try {
    await loadDenseWeights(model, pack, 'shipped');
    await loadResidentExperts(model, pack, 'shipped');
    return model;
  } catch (thrown) {
    model.dispose();
    throw thrown;
  }
}

/** The error to throw where the model, or its passes, take more than the memory. */
function inWords(thrown: unknown, { directory }: Pack, memoryBytes: number): unknown {
  if (toOdmoeError(thrown).code !== 'DEVICE_OUT_OF_MEMORY') return thrown;
  return new OdmoeError(
    'USAGE',
    `${directory}: the model does not fit into ${formatByteSize(memoryBytes)} of memory, so it cannot answer here: give a text with ` +
      '--text, or more --memory',
    { cause: thrown },
  );
}
