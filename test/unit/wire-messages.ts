import type {
  Execute,
  ExecuteResult,
  ExpertResult,
  Finished,
  GenerateReply,
  GenerateRequest,
  Predict,
  Release,
  Restart,
} from '../../shared/wire/messages.js';
import { NO_TIMES } from '../../shared/wire/messages.js';
import { passOfSequence } from '../../shared/wire/pass-rows.js';

/** The place of a pass of one sequence: sequence, position and layer. */
export interface Place {
  sequence?: number;
  position?: number;
  layer: number;
}

/** An Execute of one expert on all rows (by default one) of a pass of one sequence. */
export interface PlainExecute extends Place, Partial<Omit<Execute, 'pass' | 'rows' | 'layer' | 'experts'>> {
  expert: number;
  rows?: number;
  last?: boolean;
  upper?: number[];
}

export function plainExecute(wanted: PlainExecute): Execute {
  const { sequence = 1, position = 0, expert, rows = 1, last = true, upper, ...fields } = wanted;
  const hidden = Buffer.from([1, 2, 3, 4]);
  return {
    requestId: 1,
    epoch: 1,
    hiddenSize: 1,
    dtype: 'TENSOR_TYPE_F32',
    hidden,
    ...passOfSequence(sequence, position, rows),
    ...fields,
    experts: [upper === undefined ? { expert, rows: [], last } : { expert, rows: [], last, upper }],
  };
}

export function plainPrediction(
  wanted: Place & { epoch?: number; experts: number[]; workers?: number[]; critical?: number[] },
): Predict {
  const { sequence = 1, position = 0, layer, epoch = 1, experts, workers, critical } = wanted;
  const named = critical === undefined ? { experts } : { experts, critical };
  const predict = { epoch, ...passOfSequence(sequence, position, 1), layer, ...named };
  return workers === undefined ? predict : { ...predict, workers };
}

export function restartAt({ sequence = 1, position = 0, epoch = 1 }): Restart {
  return { epoch, sequence, position };
}

export function plainRelease(wanted: Place & { epoch?: number; experts: number[] }): Release {
  const { sequence = 1, position = 0, layer, epoch = 1, experts } = wanted;
  return { epoch, ...passOfSequence(sequence, position, 1), layer, experts };
}

/** The result of one expert, as the only part of an answer. */
export function plainResult(
  answer: Pick<ExecuteResult, 'requestId'> & Partial<ExecuteResult> & { expert?: Partial<ExpertResult> },
): ExecuteResult {
  const { expert, ...fields } = answer;
  const ran = { expert: 0, rows: 1, wasLoaded: true, stallUs: 0, executeUs: 1, ...NO_TIMES, output: new Uint8Array(4) };
  const experts = [{ ...ran, failure: null, ...expert }];
  return { epoch: 1, hiddenSize: 1, dtype: 'TENSOR_TYPE_F32', experts, last: true, kept: null, ...fields };
}

/** A request for five tokens behind a text. */
export function plainRequest(changes: Partial<GenerateRequest> = {}): GenerateRequest {
  return {
    text: 'hello',
    messages: [],
    promptTokenIds: [],
    raw: false,
    maxTokens: 5,
    sampling: null,
    stop: [],
    ignoreEos: false,
    logprobs: 0,
    ...changes,
  };
}

/** The end of an answer that has reached its length. */
export function plainFinished(changes: Partial<Finished> = {}): GenerateReply {
  const figures = { logicalCache: null, cachedTokens: 0, timing: null, sep: null, reloads: 0, nodes: [], drafts: null };
  return {
    kind: 'finished',
    finished: { finishReason: 'length', stopString: '', text: 'all', ...figures, ...changes },
  };
}
