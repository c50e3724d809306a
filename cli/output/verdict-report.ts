import type { ConfigVerdict } from '../../packs/checkpoint/config-verdict.js';
import { shortName } from '../../packs/model-config/config-reader.js';

/** Most architectures that are shown: they are the file's own words. */
const NAMED = 4;

/** One line of a config.json's verdict. */
export function verdictLine({ verdict, without, missing, reason }: ConfigVerdict): string {
  if (verdict === 'runs') return 'runs';
  if (verdict === 'runs-without') return `runs without ${without.join(' and ')}: its text runs`;
  const why = missing.length > 0 ? `odmoe lacks ${missing.join(', ')}` : (reason ?? '');
  return verdict === 'not-yet' ? `does not run yet: ${why}` : `does not run: ${reason ?? ''}`;
}

/** Lines of `odmoe inspect` on a config.json without weights. */
export function verdictLines(path: string, verdict: ConfigVerdict): string[] {
  const { architectures, family } = verdict;
  const named = architectures.slice(0, NAMED).map(shortName);
  const more = architectures.length > NAMED ? ` and ${architectures.length - NAMED} more` : '';
  return [
    `${path}: the config.json of a model, without weights`,
    `  model       ${named.length > 0 ? `${named.join(', ')}${more}` : 'none named'}${family === null ? '' : `, read as ${family}`}`,
    `  verdict     ${verdictLine(verdict)}`,
  ];
}
