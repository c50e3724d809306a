import type { PredictionOutcome } from '../../shared/wire/cluster-events.js';
import type { Bar, BarKind } from './timeline.js';

/** The fill of a bar: a colour, and a pattern of lines or dots over it, so that no meaning depends on colour alone. */
export interface Paint {
  /** Also names its pattern within a drawing. */
  name: string;
  colour: string;
  pattern: 'plain' | 'stripes' | 'cross' | 'dots' | 'hollow';
  /** The text in the legend. */
  words: string;
  /** The colour of letters on the bar. */
  ink: string;
}

/** Colours after Okabe and Ito: people with colour blindness can distinguish them, too. */
const INK = '#1a1a1a';
const KIND_PAINTS: Record<Exclude<BarKind, 'load'>, Paint> = {
  attention: { name: 'attention', colour: '#7cc5ee', pattern: 'plain', words: 'attention and router', ink: INK },
  wait: { name: 'wait', colour: '#a3a9b2', pattern: 'hollow', words: 'waiting', ink: INK },
  sum: { name: 'sum', colour: '#0072b2', pattern: 'plain', words: 'sum', ink: '#ffffff' },
  head: { name: 'head', colour: '#3f8fc4', pattern: 'plain', words: 'H: LM head', ink: '#ffffff' },
  shadow: { name: 'shadow', colour: '#d79bbc', pattern: 'plain', words: 'shadow', ink: INK },
  stall: { name: 'stall', colour: '#a3a9b2', pattern: 'hollow', words: 'waits', ink: INK },
  execute: { name: 'execute', colour: '#26a583', pattern: 'plain', words: 'expert computed', ink: INK },
};
const LOAD_PAINTS: Record<PredictionOutcome, Paint> = {
  predicted: { name: 'predicted', colour: '#b9e3d3', pattern: 'plain', words: 'load, predicted', ink: INK },
  late: { name: 'late', colour: '#f0b429', pattern: 'stripes', words: 'load, predicted late', ink: INK },
  missed: { name: 'missed', colour: '#f0905a', pattern: 'cross', words: 'load, missed', ink: INK },
  announced: { name: 'announced', colour: '#c9d6ea', pattern: 'dots', words: 'load, announced', ink: INK },
  unpredicted: { name: 'unpredicted', colour: '#d5d7db', pattern: 'plain', words: 'load, nobody predicts', ink: INK },
};
/** The outline of a load that began after the router's choice. */
export const RELOADED_COLOUR = '#b3261e';
export const PREDICTION_COLOUR = '#a34d7e';

export function paintOf({ kind, foretold }: Pick<Bar, 'kind' | 'foretold'>): Paint {
  return kind === 'load' ? LOAD_PAINTS[foretold ?? 'unpredicted'] : KIND_PAINTS[kind];
}

/** All paints in the order of the legend. */
export const PAINTS: readonly Paint[] = [
  KIND_PAINTS.attention,
  KIND_PAINTS.sum,
  KIND_PAINTS.head,
  KIND_PAINTS.wait,
  KIND_PAINTS.shadow,
  KIND_PAINTS.execute,
  ...Object.values(LOAD_PAINTS),
];

/** Side length of the square that a pattern repeats. */
export const PATTERN_PIXELS = 6;
/** Colour and opacity of the patterns' lines. */
export const PATTERN_STROKE = '#1a1a1a';
export const PATTERN_OPACITY = 0.32;
/** Lines of the patterns, as SVG paths in that square. */
export const PATTERN_PATHS: Record<Paint['pattern'], string> = {
  plain: '',
  hollow: '',
  stripes: 'M-1,1 l2,-2 M0,6 l6,-6 M5,7 l2,-2',
  cross: 'M0,6 l6,-6 M0,0 l6,6',
  dots: 'M2,3 h2',
};

/** The fill of an SVG element. A pattern has its own name in the same drawing, after `prefix`. */
export function fillOf({ colour, pattern, name }: Paint, prefix: string): string {
  if (pattern === 'hollow') return 'none';
  return pattern === 'plain' ? colour : `url(#${prefix}${name})`;
}
