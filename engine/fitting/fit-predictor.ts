/** Makes the predictor of a pack: records what its routers choose, and trains maps that foretell it (docs/predictor.md). */
import { createHash } from 'node:crypto';
import { createExpertMaps, type Device, openDevice, trainExpertMaps } from '../../native/index.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { type LayerRecall, type Predictor, writePredictor } from '../../packs/predictor/predictor-file.js';
import { mostPredictorBytes } from '../../packs/predictor/predictor-layout.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { odmoeVersion } from '../../shared/base/files/odmoe-version.js';
import { requireFreeBytes } from '../../shared/base/files/storage-error.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { formatByteSize } from '../../shared/base/text/byte-size.js';
import { openTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import { existingDistances, type ExpertMapsShape, type LayerMaps } from '../../shared/model/expert-maps.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { loadDenseWeights } from '../loading/load-weights.js';
import { chooseUnits, countForetold, countKnown, DISTANCES } from './foretold-experts.js';
import { FittingFolder } from './fitting-folder.js';
import { copyRecorded } from './copy-recorded.js';
import { cutText, divideRecorded, divideTokens, type FittingTokens, requireTokens } from './fitting-tokens.js';
import { makeOwnAnswers } from './make-own-answers.js';
import { recordLayers } from './record-layers.js';
import type { RecordedHeads, RecordedStates } from './recorded-states.js';
import { tokensOfText } from './text-tokens.js';

const EPOCHS = 24;
/** Rows whose predictions are compared at a time. */
const COMPARED_ROWS = 1024;
const VALUE_BYTES = 4;

export type FittingStage = 'answers' | 'recording' | 'reading' | 'copying' | 'training';

export interface FittingRequest {
  /** Tokens to record; of the model's own answers, a few more. */
  readonly tokens: number;
  /** Null: the model's own answers. `path` stands in messages. */
  readonly text: { readonly path: string; readonly content: string } | null;
  /** The states that main has recorded, with at least `tokens` rows; null: they are made here. Beside them, text is null. */
  readonly recorded: RecordedStates | null;
  readonly memoryBytes: number;
  readonly seed: number;
  /** Rows of the hidden layers; null: by the sizes of the model. */
  readonly units: number | null;
  readonly signal: AbortSignal;
  readonly runtime: Pick<Runtime, 'nextTurn'>;
  readonly onProgress: (stage: FittingStage, done: number, total: number) => void;
  /** Hears how many recorded rows are damaged and left out, if any are. */
  readonly onDamaged?: (rows: number) => void;
}

/**
 * Refuses a request that cannot succeed, before anybody waits for its tokens.
 * @throws MODEL_UNSUPPORTED, USAGE (too few tokens, too little memory)
 */
export function requireFittable(
  pack: Pick<Pack, 'directory' | 'shape'>,
  { tokens, memoryBytes, recorded }: Pick<FittingRequest, 'tokens' | 'memoryBytes' | 'recorded'>,
): void {
  requireChoice(pack);
  if (recorded !== null) requireTokens(tokens, recorded.path);
  requireMemory(pack.shape, { tokens, memoryBytes });
}

/**
 * Fits the pack, and writes the predictor to it. Continues with what an interrupted run with the same inputs has left.
 * @throws MODEL_UNSUPPORTED, USAGE (too few tokens, too little memory), PACK_CORRUPT (recorded rows), CANCELLED, and the errors of loading and of the disk
 */
export async function fitPredictor(pack: Pack, request: FittingRequest): Promise<Predictor> {
  requireFittable(pack, request);
  const shape = mapsShape(pack.shape, request.units);
  const { tokens, seed, recorded } = request;
  const heads = recorded === null ? null : await headsOf(recorded, request);
  const text = textOf(request, heads);
  const inputs = {
    odmoeVersion: odmoeVersion(),
    sourceFingerprint: pack.manifest.source.fingerprint,
    seed,
    tokens,
    text,
    units: shape.units,
    distances: shape.distances,
  };
  const folder = await FittingFolder.open(pack.directory, inputs, pack.shape);
  let predictor: Predictor;
  try {
    const fitting = new Fitting(pack, shape, request, folder);
    const used =
      recorded === null || heads === null ? await fitting.tokens() : divideRecorded(heads.answers, recorded.path);
    await (recorded === null ? fitting.record(used) : fitting.copy(used, recorded));
    const layers = await fitting.train(used);
    const recall = await fitting.measure(layers, used);
    predictor = { shape, layers, recall, tokens: used.tokens, seed, text };
    await writePredictor(pack, predictor);
  } catch (thrown) {
    // The first error says why fitting ended; another one of the closing does not replace it.
    await folder.close().catch(() => undefined);
    throw toOdmoeError(thrown).code === 'CANCELLED' ? interrupted(thrown) : thrown;
  }
  await folder.remove();
  return predictor;
}

function headsOf(recorded: RecordedStates, { tokens, signal, onProgress }: FittingRequest): Promise<RecordedHeads> {
  return recorded.heads(tokens, { signal, onProgress: (rows) => onProgress('reading', rows, tokens) });
}

function interrupted(cause: unknown): OdmoeError {
  return new OdmoeError('CANCELLED', 'fitting was interrupted; the same command goes on with it', { cause });
}

function mapsShape({ hiddenSize, experts, expertLayers }: ModelShape, units: number | null): ExpertMapsShape {
  const shape = { hiddenSize, experts, layers: expertLayers, distances: DISTANCES };
  return { ...shape, units: units ?? chooseUnits(shape) };
}

/** @throws MODEL_UNSUPPORTED where routers have nothing to choose */
function requireChoice({ directory, shape: { experts, expertsPerToken } }: Pick<Pack, 'directory' | 'shape'>): void {
  if (expertsPerToken < experts) return;
  throw new OdmoeError(
    'MODEL_UNSUPPORTED',
    `${directory}: each token uses all ${experts} experts of a layer, so no router has a choice that could be foretold; the model needs no predictor`,
  );
}

/**
 * A layer is trained with its states, and with the choices at each distance, of which native code makes a copy.
 * @throws USAGE if they do not fit into memory
 */
function requireMemory(
  { hiddenSize, expertsPerToken }: ModelShape,
  { tokens, memoryBytes }: Pick<FittingRequest, 'tokens' | 'memoryBytes'>,
): void {
  const neededBytes = tokens * VALUE_BYTES * (hiddenSize + 2 * DISTANCES.length * expertsPerToken);
  if (neededBytes <= memoryBytes) return;
  throw new OdmoeError(
    'USAGE',
    `training with ${tokens} tokens needs ${formatByteSize(neededBytes)} of memory and may take ${formatByteSize(memoryBytes)}: ` +
      'give fewer --tokens, or more --memory',
  );
}

/** The source of the tokens, in a few words. */
function textOf({ text }: FittingRequest, heads: RecordedHeads | null): string {
  if (heads !== null) return `recorded answers ${heads.digest}`;
  return text === null ? 'own answers' : `text ${sha256(text.content)}`;
}

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** The steps of one run. */
class Fitting {
  constructor(
    private readonly pack: Pack,
    private readonly shape: ExpertMapsShape,
    private readonly request: FittingRequest,
    private readonly folder: FittingFolder,
  ) {}

  async tokens(): Promise<FittingTokens> {
    const { text, tokens, signal, runtime } = this.request;
    if (text === null) {
      const sequences = await this.withDevice((device) => makeOwnAnswers(device, this.pack, this.request, this.folder));
      return divideTokens(sequences, 'the answers of the model');
    }
    const tokenizer = await openTokenizer(this.pack.directory, null);
    if (tokenizer === null) {
      throw new OdmoeError(
        'USAGE',
        `${this.pack.directory}: has no tokenizer.json, so a text gives no tokens: leave --text out, or add the file`,
      );
    }
    const { vocabSize, maxPositions } = this.pack.shape;
    const ids = await tokensOfText(tokenizer, text.content, { tokens, vocabSize, signal, runtime });
    return divideTokens(cutText(ids, tokens, maxPositions), text.path);
  }

  /** Copies the rows that main has recorded, and that are not copied yet. Each sequence holds the numbers of its rows. */
  async copy(used: FittingTokens, recorded: RecordedStates): Promise<void> {
    const { pack, folder, request } = this;
    const { sequences, tokens } = used;
    if (folder.recordedRows < tokens) {
      await this.requireRoom(tokens);
      const { signal } = request;
      await copyRecorded(recorded, sequences.flat(), pack.shape, {
        firstRow: folder.recordedRows,
        signal,
        record: (rows) => folder.record(rows),
        keep: (rows) => folder.setRecordedRows(rows),
        onProgress: (rows) => request.onProgress('copying', rows, tokens),
      });
    }
    await this.requireWholeRows(used, recorded);
  }

  /**
   * Damaged rows are left out, and their number is said.
   * @throws PACK_CORRUPT if too few of the rows are whole to train with or to measure by
   */
  private async requireWholeRows({ tokens, trainedTokens }: FittingTokens, { path }: RecordedStates): Promise<void> {
    const trained = await this.knownRows(0, trainedTokens);
    const measured = await this.knownRows(trainedTokens, tokens);
    const damaged = tokens - trained - measured;
    if (trained * 2 < trainedTokens || measured * 2 < tokens - trainedTokens) {
      throw new OdmoeError(
        'PACK_CORRUPT',
        `${path}: ${damaged} of ${tokens} rows are damaged; remove it, and let main record anew`,
      );
    }
    if (damaged > 0) this.request.onDamaged?.(damaged);
  }

  /** The rows in [begin, end) with choices. A row without has none at any layer. */
  private async knownRows(begin: number, end: number): Promise<number> {
    let known = 0;
    for (let row = begin; row < end; row += COMPARED_ROWS) {
      const rows = Math.min(COMPARED_ROWS, end - row);
      known += countKnown(await this.folder.choices(0, row, rows), rows);
    }
    return known;
  }

  private async requireRoom(tokens: number): Promise<void> {
    const { pack, folder } = this;
    const { hiddenSize, expertsPerToken, expertLayers } = pack.shape;
    const rowBytes = (hiddenSize + expertsPerToken) * VALUE_BYTES;
    const missingBytes = (tokens - folder.recordedRows) * expertLayers * rowBytes;
    await requireFreeBytes(folder.directory, missingBytes + mostPredictorBytes(this.shape));
  }

  /** Records the rows that are not recorded yet. */
  async record({ sequences, tokens }: FittingTokens): Promise<void> {
    const { pack, folder, request } = this;
    if (folder.recordedRows >= tokens) return;
    await this.requireRoom(tokens);
    await this.withDevice(async (device) => {
      const model = device.createModel(pack.shape);
      try {
        await loadDenseWeights(model, pack, 'shipped');
        const { memoryBytes, signal } = request;
        const recorder = {
          device,
          model,
          source: pack,
          memoryBytes,
          signal,
          record: (rows: Parameters<FittingFolder['record']>[0]) => folder.record(rows),
          waveDone: (rows: number) => folder.setRecordedRows(rows),
          onProgress: (done: number, total: number) => request.onProgress('recording', done, total),
        };
        await recordLayers(recorder, sequences, folder.recordedRows);
      } finally {
        model.dispose();
      }
    });
  }

  async train({ trainedTokens }: FittingTokens): Promise<LayerMaps[]> {
    const { shape, folder, request } = this;
    const layers: LayerMaps[] = [];
    for (let layer = 0; layer < shape.layers; layer += 1) {
      const done = await folder.maps(shape, layer);
      const onEpoch = (epochs: number): void =>
        request.onProgress('training', layer * EPOCHS + epochs, shape.layers * EPOCHS);
      const maps = done ?? (await this.trainLayer(layer, trainedTokens, onEpoch));
      if (done === null) await folder.keepMaps(shape, layer, maps);
      onEpoch(EPOCHS);
      layers.push(maps);
    }
    return layers;
  }

  /** The recall of the held-back rows, by layer and distance. */
  async measure(layers: readonly LayerMaps[], { tokens, trainedTokens }: FittingTokens): Promise<LayerRecall[]> {
    const { shape, folder } = this;
    const recall: LayerRecall[] = [];
    const maps = createExpertMaps(shape, layers);
    try {
      const all = (await this.knownRows(trainedTokens, tokens)) * this.pack.shape.expertsPerToken;
      for (let layer = 0; layer < shape.layers; layer += 1) {
        const ahead = existingDistances(shape, layer);
        const found = ahead.map(() => 0);
        for (let row = trainedTokens; row < tokens; row += COMPARED_ROWS) {
          const rows = Math.min(COMPARED_ROWS, tokens - row);
          const scores = await maps.predict(layer, await folder.states(layer, row, rows), rows);
          for (const [index, distance] of ahead.entries()) {
            const chosen = await folder.choices(layer + distance, row, rows);
            found[index] =
              (found[index] ?? 0) +
              countForetold(scores, chosen, { rows, index, ahead: ahead.length, experts: shape.experts });
          }
        }
        recall.push(
          ...ahead.map((distance, index) => ({ layer, distance, recall: (found[index] ?? 0) / Math.max(1, all) })),
        );
      }
      return recall;
    } finally {
      maps.dispose();
    }
  }

  private async trainLayer(layer: number, tokens: number, onEpoch: (epochs: number) => void): Promise<LayerMaps> {
    const { shape, folder, pack, request } = this;
    const { hiddenSize, experts, units } = shape;
    const states = await folder.states(layer, 0, tokens);
    const choices: Int32Array[] = [];
    for (const distance of existingDistances(shape, layer)) {
      choices.push(await folder.choices(layer + distance, 0, tokens));
    }
    const { expertsPerToken } = pack.shape;
    const { seed, signal } = request;
    return trainExpertMaps(
      { hiddenSize, experts, expertsPerToken, units, states, choices, epochs: EPOCHS, seed },
      onEpoch,
      signal,
    );
  }

  private async withDevice<Result>(use: (device: Device) => Promise<Result>): Promise<Result> {
    const { memoryBytes: budgetBytes } = this.request;
    const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 0, budgetBytes });
    try {
      return await use(device);
    } finally {
      device.dispose();
    }
  }
}
