import { lookupAcceptance } from '../../main-node/decode/lookup-source.js';
import { PassLoop } from '../../main-node/batching/pass-loop.js';
import { Roster } from '../../main-node/cluster/roster.js';
import { ShadowLink } from '../../main-node/cluster/shadow-link.js';
import type { ClusterEngine } from '../../main-node/decode/cluster-engine.js';
import { ClusterSequence } from '../../main-node/decode/cluster-sequence.js';
import { DraftCostMeter } from '../../main-node/decode/draft-costs.js';
import { CachedNews } from '../../main-node/decode/cached-news.js';
import { PredictionPost } from '../../main-node/decode/prediction-post.js';
import type { MemberRows } from '../../main-node/pass/pass-member.js';
import { ReusablePasses } from '../../main-node/pass/reusable-passes.js';
import { AnnouncedPasses } from '../../main-node/pass/announcements.js';
import { ContextRoom } from '../../main-node/room/context-room.js';
import type { NodeStatus, ShadowReply, ShadowRequest } from '../../shared/wire/messages.js';
import type { Timer } from '../../shared/base/runtime/runtime.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { resolveSampling } from '../../shared/wire/sampling-options.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { testSettings } from '../integration/harness/test-settings.js';
import { type Closing, HeldWork } from './held-work.js';
import { identity } from './membership-setting.js';
import { GROUPING } from './plain-shape.js';
import { SHAPE, ScriptedModel } from './scripted-shadow-model.js';
import { silentLog } from './worker-test-slots.js';

export const PROMPT = [1, 2, 3];
/** Id of the sequence. */
const SEQUENCE = 7;
export const SAMPLING = resolveSampling(null, () => 0);
const never = new AbortController().signal;
const nothing = (): void => undefined;

/** A runtime without timers: waits end by events, never by time. */
const TIMELESS = Object.assign(new WallRuntime(), { after: (): Timer => ({ cancel: nothing, unref: nothing }) });

/** A main whose passes are held back, with or without a shadow. */
export class HeldMain {
  readonly work = new HeldWork();
  readonly model = new ScriptedModel();
  readonly engine: ClusterEngine;
  /** Passes that have begun. */
  passes = 0;
  private readonly link: ShadowLink;

  /** `draftRows`: rows of a pass that verifies drafts. */
  constructor({ hasShadow, draftRows = 1 }: { hasShadow: boolean; draftRows?: number }) {
    const settings = testSettings('main', '/nowhere', { drafting: { rows: draftRows, optimistic: true } });
    const { align, prediction } = settings;
    const drafting = { ...settings.drafting, shadowRows: draftRows, ownRows: 1, lookup: lookupAcceptance() };
    const roster = new Roster(SHAPE, GROUPING, 1, TIMELESS, silentLog);
    const listeners = { onPrefixKept: () => true, onPrediction: nothing, onRestart: nothing, onDraft: nothing };
    const listener = { ...listeners, onSequenceDropped: nothing, onLost: nothing, onDrained: nothing };
    const stream = new MemoryStream<ShadowRequest, ShadowReply>();
    this.link = new ShadowLink(IDENTITY, 'shadow:1', stream, SHAPE, listener, silentLog);
    if (hasShadow) roster.addShadow(this.link);
    const pool = new ReusablePasses(this.model, SHAPE, 4, 1);
    const room = new ContextRoom({
      runtime: TIMELESS,
      model: this.model,
      limitBytes: 1,
      limitSetBy: 'context_memory',
      bytesOf: () => 1,
      maxPositions: SHAPE.maxPositions,
      isRecurrent: false,
      reusesPrefixes: false,
    });
    const passLoop = new PassLoop({
      joint: false,
      maxRows: draftRows,
      promptChunkRows: 4,
      maxDelayMs: 'auto',
      room,
      runtime: TIMELESS,
      passes: pool,
      promptChunkPasses: pool,
      runPass: (_slot, rows) => {
        this.passes += 1;
        return this.work.whenLetGo(() => ran(rows));
      },
    });
    this.engine = {
      shape: SHAPE,
      model: this.model,
      roster,
      room,
      passLoop,
      align,
      drafting,
      prediction,
      runtime: TIMELESS,
      draftCosts: new DraftCostMeter(),
      keptNews: new CachedNews(roster),
      spread: 'group',
      log: silentLog,
      predictionPost: new PredictionPost(roster, new AnnouncedPasses()),
    } as unknown as ClusterEngine;
  }

  sequence(signal = never): ClusterSequence {
    const request = { id: SEQUENCE, client: '', promptTokens: PROMPT.length, maxPositions: 20, sampling: SAMPLING };
    return new ClusterSequence(this.engine, { ...request, onPrefill: nothing }, signal);
  }

  /** Shadow drafts the token for the pass of the sequence that begins at `passPosition`. */
  draft(position: number, tokenId: number, passPosition: number): void {
    const draft = { epoch: 1, sequence: SEQUENCE, position, tokenId, branch: 0, passPosition, runUs: 1 };
    this.engine.predictionPost.draft(draft, this.link);
  }

  /** Gives main a status of shadow. */
  tellStatus(): void {
    this.link.receive({ kind: 'status', status: { identity: IDENTITY, epoch: 1 } as NodeStatus });
  }

  /** The end of the sequence frees the memory of its rows. */
  closing(sequence: ClusterSequence, letGo: () => void): Closing {
    const holds = (): string[] => (this.model.disposed.length > 0 ? [] : ['rows']);
    return { close: () => sequence.end(), letGo, holds };
  }
}

const IDENTITY = identity('shadow', 'ROLE_SHADOW');

/** Rows of a pass are written, and their logits are all alike. */
function ran(rows: readonly MemberRows[]): Float32Array[][] {
  return rows.map(({ member, position, tokenIds, logitsFrom, onLogits }) => {
    (member.sequence as { length: number }).length = position + tokenIds.length;
    return tokenIds.slice(logitsFrom).map((_, row) => {
      const logits = new Float32Array(SHAPE.vocabSize);
      onLogits?.(position + logitsFrom + row, logits);
      return logits;
    });
  });
}
