import {
  REMEMBERED_FIGURES_S,
  type ExpertHeat,
  type FigureSample,
  type RecallView,
} from '../../shared/wire/cluster-events.js';
import { SAMPLE_EXPERTS, SAMPLE_EXPERT_LAYERS, sampleMs } from './sample-cluster.js';

/** 0 to 1, the same for the same number: a sample looks alike at every run. */
export function chanceOf(number: number): number {
  const mixed = Math.sin(number * 12.9898 + 4.1414) * 43_758.5453;
  return mixed - Math.floor(mixed);
}

/** Second `secondsOn` of the sample's life; negative: before the page was opened. */
export function sampleFigures(secondsOn: number): FigureSample {
  const wave = Math.sin(secondsOn / 47) + 0.5 * Math.sin(secondsOn / 13);
  const noise = chanceOf(secondsOn) - 0.5;
  const isIdle = Math.floor((secondsOn + 6000) / 40) % 9 === 4;
  const activeRequests = isIdle ? 0 : Math.max(1, Math.round(2.6 + wave));
  const tokensPerS = isIdle ? 0 : activeRequests * (6.1 + noise);
  const passes = isIdle ? 0 : Math.round(7 + noise * 3);
  const hasFirstToken = !isIdle && chanceOf(secondsOn + 500) > 0.72;
  return {
    atMs: sampleMs(secondsOn),
    tokensPerS,
    ttftMs: hasFirstToken ? 640 + 420 * chanceOf(secondsOn + 900) + 180 * activeRequests : null,
    recall: isIdle ? null : 0.955 + 0.02 * noise + 0.008 * wave,
    reloadsPerS: isIdle ? 0 : Math.max(0, Math.round(3 + 4 * noise)),
    draftsRight: isIdle ? null : 0.61 + 0.12 * noise + 0.04 * wave,
    loadsPerS: isIdle ? 0 : 210 + 60 * wave,
    loadBytesPerS: isIdle ? 0 : (1.1 + 0.25 * wave + 0.2 * noise) * 1e9,
    activeRequests,
    queuedRequests: Math.max(0, Math.round(wave + noise - 0.4)),
    passes,
    rows: passes * activeRequests * 2,
  };
}

export function sampleHistory(secondsOn: number): FigureSample[] {
  return Array.from({ length: REMEMBERED_FIGURES_S }, (_, index) =>
    sampleFigures(secondsOn - REMEMBERED_FIGURES_S + 1 + index),
  );
}

export function sampleRecall(): RecallView {
  const activated = Array.from(
    { length: 420 },
    (_, position) => SAMPLE_EXPERT_LAYERS * 8 * Math.max(1, 60 - Math.floor(position / 8)),
  );
  const correct = activated.map((count, position) =>
    Math.round(
      count * (0.968 - 0.03 * Math.exp(-position / 6) - 0.00004 * position + 0.006 * (chanceOf(position) - 0.5)),
    ),
  );
  return { correct, activated };
}

/** Some experts are liked by most tokens, most by few. */
export function sampleHeat(): ExpertHeat {
  const counts = Array.from({ length: SAMPLE_EXPERT_LAYERS * SAMPLE_EXPERTS }, (_, index) =>
    Math.round(1000 * chanceOf(index + 7) ** 5 + 40 * chanceOf(index + 70_000)),
  );
  return { expertLayers: SAMPLE_EXPERT_LAYERS, experts: SAMPLE_EXPERTS, counts };
}
