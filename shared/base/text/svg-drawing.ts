/** Makes SVG text of a few words, lines and boxes; no library. */

/** A part of a plot. `body`: SVG elements within 0..width and 0..height pixels. */
export interface Drawing {
  width: number;
  height: number;
  body: string;
}

/** The text of an SVG file with the drawings one below the other, each centred. */
export function svgFile(drawings: readonly Drawing[]): string {
  const width = Math.max(0, ...drawings.map((drawing) => drawing.width));
  const height = drawings.reduce((sum, drawing) => sum + drawing.height, 0);
  let top = 0;
  const placed = drawings.map((drawing) => {
    const place = `translate(${round((width - drawing.width) / 2)} ${top})`;
    top += drawing.height;
    return `<g transform="${place}">${drawing.body}</g>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" ` +
      'font-family="sans-serif" font-size="11" fill="#222222">',
    `<rect width="${width}" height="${height}" fill="#ffffff"/>`,
    ...placed,
    '</svg>',
    '',
  ].join('\n');
}

export function line(x1: number, y1: number, x2: number, y2: number, paint: string): string {
  return `<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" stroke="${paint}"/>`;
}

/** `words`: plain text; `attributes`: SVG attributes. */
export function svgText(x: number, y: number, words: string, attributes: string): string {
  return `<text x="${x}" y="${y}"${attributes === '' ? '' : ` ${attributes}`}>${escaped(words)}</text>`;
}

/** Escapes words for the content of an element. */
export function escaped(words: string): string {
  return words.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

/** Rounds to hundredths of a pixel. */
export function round(value: number): number {
  return Math.round(value * 100) / 100;
}

const TICKS = 5;

/** Round numbers from 0 on, at most TICKS of them after 0. The last one is not below `most`. */
export function ticks(most: number): number[] {
  if (!(most > 0)) return [0, 1];
  const rough = most / TICKS;
  let magnitude = 1;
  while (magnitude > rough) magnitude /= 10;
  while (magnitude * 10 <= rough) magnitude *= 10;
  const step = [1, 2, 2.5, 5, 10]
    .map((factor) => factor * magnitude)
    .find((candidate) => candidate >= rough * (1 - 1e-9));
  const size = step ?? 10 * magnitude;
  return Array.from({ length: Math.ceil(most / size - 1e-9) + 1 }, (_, index) => index * size);
}
