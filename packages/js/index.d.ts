export interface Options {
  /** Arguments of `lockgate envtest start`. */
  args?: string[];
  /** The program; LOCKGATE, or the first `lockgate` on PATH, unless it is set. */
  program?: string;
  /** Milliseconds until it must be ready. */
  timeout?: number;
}

export interface Server {
  url: string;
  /** The CA certificate of the server, as PEM. */
  ca: string;
  /** The file of an admin kubeconfig; removed when the server stops. */
  kubeconfig: string;
  pid: number;
  stop(): Promise<void>;
}

export function start(options?: Options): Promise<Server>;
