/** The views of the page, as its address names them. */
export const PAGE_ROUTES = ['cluster', 'token', 'time', 'chat', 'machines'] as const;
export type Route = (typeof PAGE_ROUTES)[number];

export const ROUTE_TITLES: Record<Route, string> = {
  cluster: 'Cluster',
  token: 'A token',
  time: 'Over time',
  chat: 'Chat',
  machines: 'Machines',
};

export interface TitleFacts {
  route: Route;
  /** Empty: main has told nothing yet. */
  clusterName: string;
  /** Number of problems that main lists. */
  problems: number;
  isSilent: boolean;
  isLocked: boolean;
}

/**
 * The title of the page's tab, what matters first: "(2) Cluster home · odmoe", "(silent) Chat · home · odmoe". Where main is silent, its problems are
 * not known.
 */
export function pageTitle({ route, clusterName, problems, isSilent, isLocked }: TitleFacts): string {
  if (isLocked) return 'Log in · odmoe';
  const mark = isSilent ? '(silent) ' : problems > 0 ? `(${problems}) ` : '';
  if (clusterName === '') return `${mark}${ROUTE_TITLES[route]} · odmoe`;
  return `${mark}${BEFORE_NAME[route]}${clusterName} · odmoe`;
}

const BEFORE_NAME: Record<Route, string> = {
  cluster: 'Cluster ',
  token: 'A token · ',
  time: 'Over time · ',
  chat: 'Chat · ',
  machines: 'Machines of ',
};
