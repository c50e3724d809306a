import { operatorMs } from '../../engine/emulation/device-profile.js';
import { denseMs, type ClusterSetUp, type ClusterTimes } from '../simulate/cluster-set-up.js';
import type { PassTime } from '../simulate/cluster-timing.js';
import type { Candidate } from './search-set-ups.js';

/** The parts of a token's time, in milliseconds. */
export interface TokenBreakdown {
  mainMs: number;
  expertsMs: number;
  waitsForLoadsMs: number;
  waitsForDraftsMs: number;
  /** Time of messages and everything else. */
  networkMs: number;
}

export type BoundBy = 'main' | 'experts' | 'loads' | 'drafts' | 'network';

export function tokenBreakdown(times: ClusterTimes, { setUp, result }: Candidate): TokenBreakdown {
  const { timing } = result;
  const tokens = Math.max(1, result.tokensPerPass * timing.passes.length);
  const passes = timing.passes.length / tokens;
  const { expertLayers, expertsPerToken } = times.model.shape;
  // The experts of one worker run one after the other; an even spread over workers is assumed, which is the best case.
  const inTurn = Math.ceil(expertsPerToken / layerWorkers(setUp, expertsPerToken));
  const mainMs = timing.passes.reduce((sum, pass) => sum + passMs(times, pass), 0) / tokens;
  const expertsMs = passes * expertLayers * inTurn * operatorMs(times.worker.expert, 1);
  const waitsForLoadsMs = timing.stallMs.reduce((sum, ms) => sum + ms, 0) / tokens;
  const waitsForDraftsMs = timing.draftWaitMs / tokens;
  const networkMs = Math.max(0, result.tpotMs - mainMs - expertsMs - waitsForLoadsMs - waitsForDraftsMs);
  return { mainMs, expertsMs, waitsForLoadsMs, waitsForDraftsMs, networkMs };
}

/** Number of workers that share a layer's experts. */
function layerWorkers({ workers, placement }: ClusterSetUp, expertsPerToken: number): number {
  if (placement.homes === 'strict' || placement.spread === 'all') return workers;
  return Math.min(workers, placement.groupSize === 'auto' ? expertsPerToken : placement.groupSize);
}

/** Main's computing time of a pass. */
function passMs({ main, model }: ClusterTimes, { position, rows }: PassTime): number {
  const positions = Int32Array.from({ length: rows }, (_, row) => position + row);
  return denseMs(main, model.shape.expertLayers, positions) + operatorMs(main.lmHead, rows);
}

/** The largest part of a token's time. */
export function boundBy({ mainMs, expertsMs, ...waits }: TokenBreakdown): BoundBy {
  const parts: [BoundBy, number][] = [
    ['main', mainMs],
    ['experts', expertsMs],
    ['loads', waits.waitsForLoadsMs],
    ['drafts', waits.waitsForDraftsMs],
    ['network', waits.networkMs],
  ];
  return parts.reduce((most, part) => (part[1] > most[1] ? part : most))[0];
}
